package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/postgres/internal/queries"
)

// clampEvery is how often leases are looked at that were granted before the
// database's clock was set back, and those whose beat is gone.
const clampEvery = time.Minute

// reclaimRounds bounds how often one call looks past leases that are stuck.
const reclaimRounds = 20

// Reclaim takes back the runs of expired leases, when one question without locks
// has found that there are some. Leases of which nothing could
// be taken, because somebody holds the rows of all their runs, do not hide those
// behind them.
func (s *Store) Reclaim(ctx context.Context, request durable.ReclaimRequest) (durable.Reclaim, error) {
	if err := s.usable(ctx); err != nil {
		return durable.Reclaim{}, s.fail("reclaim runs", err)
	}
	first, err := s.queries(s.engine).ExpiredLease(ctx, queries.ExpiredLeaseParams{Horizon: timeOrNull(request.Horizon), Ahead: micro(request.Ahead)})
	if err != nil {
		return durable.Reclaim{}, s.fail("reclaim runs", err)
	}
	if first.Held && s.clampDue() {
		b := s.guarded(ctx)
		b.add(queries.ClampLeases)
		b.add(queries.ClampBeats)
		b.add(queries.FreeLeases)
		b.add(queries.PruneBeats)
		if err := s.send(ctx, s.engine, b); err != nil {
			return durable.Reclaim{}, s.fail("clamp leases", err)
		}
	}
	done := durable.Reclaim{Now: first.Now.UTC(), Soon: first.Soon}
	if !first.Expired || request.Limit <= 0 {
		return done, nil
	}
	stuck := uuidArray{}
	for range reclaimRounds {
		most := request.Limit - done.Leases
		round, passed, err := s.reclaimRound(ctx, &request, most, stuck)
		if err != nil && len(done.Runs) == 0 {
			return durable.Reclaim{}, s.fail("reclaim runs", err)
		}
		if err != nil { // what was taken before stays taken, and the caller should know
			s.config.Logger.Warn("reclaimed in part", "error", err)
			break
		}
		done.Now, done.Runs = round.Now, append(done.Runs, round.Runs...)
		done.Leases += round.Leases - len(passed)
		if len(passed) == 0 || round.Leases < most {
			break
		}
		stuck = append(stuck, passed...)
	}
	for i := range done.Runs {
		if done.Runs[i].State == durable.Pending {
			s.hint()
			break
		}
	}
	return done, nil
}

// reclaimRound looks at leases other than those that are stuck, and returns
// which of them are stuck as well.
func (s *Store) reclaimRound(
	ctx context.Context, request *durable.ReclaimRequest, most int, stuck uuidArray,
) (done durable.Reclaim, passed uuidArray, err error) {
	err = s.repeat(ctx, func() error {
		b := s.guarded(ctx)
		b.add(queries.EndBeats, small(most), timeOrNull(request.Horizon))
		b.add(queries.ReclaimRuns, timeOrNull(request.Horizon), stuck, small(most), small(request.MaxCrashes)).
			Query(scanReclaimed(&done, &passed))
		return s.send(ctx, s.engine, b)
	})
	return done, passed, err
}

func (s *Store) clampDue() bool {
	now := int64(lease.Elapsed())
	last := s.clamped.Load()
	return now-last > int64(clampEvery) && s.clamped.CompareAndSwap(last, now)
}

// scanReclaimed reads one row for each run taken back, and at least one.
func scanReclaimed(done *durable.Reclaim, stuck *uuidArray) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*done, *stuck = durable.Reclaim{}, nil
		var passed []uuid.UUID
		for rows.Next() {
			var id *uuid.UUID
			var laneID *int32
			var queue, job, worker *string
			var state, crashes *int16
			if err := rows.Scan(&done.Now, &done.Leases, &passed, &id, &laneID, &queue, &job, &worker, &state, &crashes); err != nil {
				return err
			}
			if id == nil {
				continue
			}
			done.Runs = append(done.Runs, durable.Reclaimed{
				ID: *id, Lane: *laneID, Queue: *queue, Job: *job, Worker: *worker,
				State: durable.State(*state), CrashCount: int(*crashes),
			})
		}
		*stuck = passed
		return rows.Err()
	}
}
