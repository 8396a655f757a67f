package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/sqlite/internal/queries"
)

// Reclaim takes back the runs of expired leases, the longest expired first.
func (s *Store) Reclaim(ctx context.Context, request durable.ReclaimRequest) (durable.Reclaim, error) {
	done, quiet, err := s.nothingExpired(ctx, &request)
	if err != nil {
		return durable.Reclaim{}, fmt.Errorf("reclaim: %w", err)
	}
	if quiet {
		return done, nil
	}
	waiting := false
	err = s.write(ctx, reclaims, func(ctx context.Context, c *change) error {
		done, waiting = durable.Reclaim{Now: instant(c.now)}, false
		until := c.now
		if !request.Horizon.IsZero() {
			until = min(until, request.Horizon.UnixMicro())
		}
		expired, err := c.ExpiredLeases(ctx, queries.ExpiredLeasesParams{Until: until, Most: int64(max(request.Limit, 0))})
		if err != nil {
			return err
		}
		done.Leases = len(expired)
		for i := range expired {
			runs, err := c.reclaim(ctx, &expired[i], request.MaxCrashes)
			if err != nil {
				return err
			}
			done.Runs = append(done.Runs, runs...)
		}
		waiting = slices.ContainsFunc(done.Runs, func(r durable.Reclaimed) bool { return r.State == durable.Pending })
		return nil
	})
	if err != nil {
		return durable.Reclaim{}, fmt.Errorf("reclaim: %w", err)
	}
	if waiting {
		s.hint()
	}
	return done, nil
}

// nothingExpired asks whether a lease has expired, without the write lock: mostly
// none has.
func (s *Store) nothingExpired(ctx context.Context, request *durable.ReclaimRequest) (durable.Reclaim, bool, error) {
	l, err := s.read(ctx)
	if err != nil {
		return durable.Reclaim{}, false, s.explain(err)
	}
	s.keepTime(ctx)
	now := s.clock.now()
	until := now
	if !request.Horizon.IsZero() {
		until = min(until, request.Horizon.UnixMicro())
	}
	expired, err := l.ExpiredLeases(ctx, queries.ExpiredLeasesParams{Until: until, Most: 1})
	return durable.Reclaim{Now: instant(now)}, err == nil && len(expired) == 0, s.explain(err)
}

// reclaim takes back what one lease still holds and ends it.
func (c *change) reclaim(ctx context.Context, lost *queries.ExpiredLeasesRow, maxCrashes int) ([]durable.Reclaimed, error) {
	var runs []durable.Reclaimed
	for id := range slices.Chunk(lost.RunIds, idSize) {
		row, err := c.FindReclaimable(ctx, queries.FindReclaimableParams{ID: id, ClaimID: lost.ClaimID})
		if errors.Is(err, sql.ErrNoRows) {
			continue // settled
		}
		if err != nil {
			return nil, err
		}
		run, err := c.crash(ctx, durable.RunID(id), lost, &row, maxCrashes)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, c.DeleteLease(ctx, queries.DeleteLeaseParams{ClaimID: lost.ClaimID})
}

// isolation is the number of crashes from which on a run is isolated.
const isolation = 2

// crash ends an execution whose worker is gone. The claim leaves the run, so
// that whatever the worker may still write is refused.
func (c *change) crash(
	ctx context.Context, id durable.RunID, lost *queries.ExpiredLeasesRow, row *queries.FindReclaimableRow, maxCrashes int,
) (durable.Reclaimed, error) {
	crashes := int(row.CrashCount) + 1
	lane := row.Lane
	if crashes >= isolation {
		lane = -max(lane, -lane)
	}
	state, reason := sentence(lost, row, crashes, maxCrashes)
	update := queries.ReclaimRunParams{State: int64(state), Lane: lane, DueAt: c.now, ID: id[:]}
	if state.Terminal() {
		update.FinishedAt = &c.now
	}
	if err := c.ReclaimRun(ctx, update); err != nil {
		return durable.Reclaimed{}, err
	}
	text := fmt.Sprintf("the lease of worker %s ran out (crash %d)", lost.WorkerName, crashes)
	err := c.InsertAttempt(ctx, queries.InsertAttemptParams{
		RunID: id[:], Fence: row.Fence, Number: row.Attempt, Outcome: int64(durable.Crash), Worker: lost.WorkerName,
		StartedAt: *row.StartedAt, EndedAt: c.now, Error: &text,
	})
	if err != nil {
		return durable.Reclaimed{}, err
	}
	if state.Terminal() {
		err = c.InsertProblem(ctx, queries.InsertProblemParams{RunID: id[:], EndedAt: c.now, Reason: reason})
	} else {
		err = c.InsertReady(ctx, queries.InsertReadyParams{Lane: lane, DueAt: c.now, RunID: id[:]})
	}
	return durable.Reclaimed{
		ID: id, Lane: durable.LaneID(lane), Job: row.Job, Queue: row.Queue,
		Worker: lost.WorkerName, State: state, CrashCount: crashes,
	}, err
}

// sentence is what the crash rule, and a request for its cancel, make of a run,
// and why when that ends it.
func sentence(lost *queries.ExpiredLeasesRow, row *queries.FindReclaimableRow, crashes, maxCrashes int) (durable.State, string) {
	switch {
	case durable.CrashPolicy(row.OnCrash) == durable.CrashDead:
		return durable.Dead, "its worker crashed, and its crash policy is dead"
	case lost.Alone != 0 && crashes >= maxCrashes:
		return durable.Dead, fmt.Sprintf("crashed its worker %d times, the last time while it was executed alone", crashes)
	case row.Cancel != nil:
		return durable.Cancelled, *row.Cancel
	default:
		return durable.Pending, ""
	}
}
