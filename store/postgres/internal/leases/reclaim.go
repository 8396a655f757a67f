package leases

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// clampEvery is how often leases are examined that were granted before the
// database's clock was set back, and those whose beat is gone.
const clampEvery = time.Minute

const (
	// reclaimRounds bounds how often one call looks past leases that are stuck.
	reclaimRounds = 20
	// reclaimRuns bounds the runs of one statement: measured, a hundred
	// milliseconds. What is left of a lease the next call takes.
	reclaimRuns = 2000
)

// Reclaim takes back the runs of expired leases, when one question without locks
// has found that there are some. Leases of which nothing could
// be taken, because a transaction holds the rows of all their runs, do not hide those
// behind them.
func (l *Leases) Reclaim(ctx context.Context, request store.ReclaimRequest) (store.ReclaimResult, error) {
	if err := l.schema.Usable(ctx); err != nil {
		return store.ReclaimResult{}, l.db.Fail("reclaim runs", err)
	}
	var first queries.ExpiredLeaseRow
	err := l.db.InBackground(ctx, func() (err error) {
		first, err = l.db.Queries(l.db.Engine).ExpiredLease(ctx, queries.ExpiredLeaseParams{Horizon: conn.TimeOrNull(request.Horizon), Ahead: conn.Micro(request.Ahead)})
		return err
	})
	if err != nil {
		return store.ReclaimResult{}, l.db.Fail("reclaim runs", err)
	}
	done := store.ReclaimResult{Now: first.Now.UTC(), Soon: first.Soon, Server: first.Server}
	if request.Server != 0 && request.Server != first.Server {
		l.forget()
		return done, nil
	}
	if first.Held && l.clampDue() {
		b := l.db.Guarded(ctx)
		b.Add(queries.ClampLeases)
		b.Add(queries.ClampBeats)
		b.Add(queries.FreeLeases)
		b.Add(queries.PruneBeats)
		if err := l.db.SendInBackground(ctx, b); err != nil {
			return store.ReclaimResult{}, l.db.Fail("clamp leases", err)
		}
	}
	if !first.Expired || request.Limit <= 0 {
		return done, nil
	}
	r := &reclaiming{Leases: l, request: &request, done: done, aside: l.aside.Resting(lease.Elapsed())}
	err = r.all(ctx)
	r.tell()
	if err != nil {
		if len(r.done.Runs) == 0 {
			return store.ReclaimResult{}, l.db.Fail("reclaim runs", err)
		}
		l.db.Log.Warn("reclaimed in part", "event", "reclaim.partial", "error", err) // what was taken stays taken, and the caller should know
	}
	return r.done, nil
}

// reclaiming is one Reclaim under way.
type reclaiming struct {
	*Leases

	request *store.ReclaimRequest
	done    store.ReclaimResult
	aside   conn.UUIDs     // claims and runs that are left alone
	freed   []store.LineID // the lines of turns for places that were freed
	failed  int            // statements
}

// tell has workers look for the runs that are pending again, and for those that wait for
// places which were freed.
func (r *reclaiming) tell() {
	if slices.ContainsFunc(r.done.Runs, func(r store.ReclaimedRun) bool { return r.State == store.Pending }) {
		r.wake.Hint()
	}
	r.wake.HintFreed(r.freed, r.freed)
}

// all takes leases together, and when that fails one by one.
func (r *reclaiming) all(ctx context.Context) error {
	stuck := slices.Clone(r.aside)
	for range reclaimRounds {
		most := r.request.Limit - r.done.Leases
		looked, passed, err := r.round(ctx, part{stuck: stuck, leases: most})
		if conn.RefusesRows(err) && ctx.Err() == nil {
			return r.each(ctx, err)
		}
		if err != nil {
			return err
		}
		if len(passed) == 0 || looked < most || r.room() == 0 {
			break
		}
		stuck = append(stuck, passed...)
	}
	return nil
}

// part is what one statement may take.
type part struct {
	stuck  conn.UUIDs // leases that it does not look at
	just   *uuid.UUID // the only lease that it does; nil: any
	runs   conn.UUIDs // the only runs; nil: any
	leases int        // the most
}

// room is how many more runs may be taken.
func (r *reclaiming) room() int {
	most := reclaimRuns
	if r.request.Runs > 0 {
		most = min(most, r.request.Runs)
	}
	return max(most-len(r.done.Runs), 0)
}

// round takes a part, in one transaction, and returns how many leases it has
// examined and which of them are stuck.
func (r *reclaiming) round(ctx context.Context, p part) (looked int, passed conn.UUIDs, err error) {
	var done store.ReclaimResult
	var freed []store.LineID
	horizon := conn.TimeOrNull(r.request.Horizon)
	err = r.db.Repeat(ctx, func() error {
		b := r.db.Guarded(ctx)
		b.Add(queries.EndBeats, r.aside, p.just, conn.Small(p.leases), horizon)
		b.Add(queries.ReclaimRuns, horizon, p.stuck, p.just, conn.Small(p.leases), r.aside, p.runs, conn.Small(r.room()),
			int32(store.MostCrashes), conn.Small(r.request.MaxCrashes), int32(rules.Isolation), rules.LeaseExpired, rules.CrashedDead, rules.CrashedAlone).
			Query(scanReclaimed(&done, &passed, &freed))
		return r.db.Send(ctx, r.db.Engine, b)
	})
	if err != nil {
		r.failed++
		return 0, nil, err
	}
	r.done.Now, r.done.Runs = done.Now, append(r.done.Runs, done.Runs...)
	r.done.Leases += done.Leases - len(passed)
	r.freed = append(r.freed, freed...)
	return done.Leases, passed, nil
}

func (l *Leases) clampDue() bool {
	now := int64(lease.Elapsed())
	last := l.clamped.Load()
	return now-last > int64(clampEvery) && l.clamped.CompareAndSwap(last, now)
}

// scanReclaimed reads one row for each run reclaimed, and at least one.
func scanReclaimed(done *store.ReclaimResult, stuck *conn.UUIDs, freed *[]store.LineID) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*done, *stuck, *freed = store.ReclaimResult{}, nil, nil
		var passed []uuid.UUID
		var lines []store.LineID
		for rows.Next() {
			var id *uuid.UUID
			var laneID *int32
			var queue, job, worker *string
			var state, crashes *int16
			if err := rows.Scan(&done.Now, &done.Leases, &passed, &lines, &id, &laneID, &queue, &job, &worker, &state, &crashes); err != nil {
				return err
			}
			if id == nil {
				continue
			}
			done.Runs = append(done.Runs, store.ReclaimedRun{
				ID: *id, Lane: *laneID, Queue: *queue, Job: *job, Worker: *worker,
				State: store.State(*state), CrashCount: int(*crashes),
			})
		}
		*stuck, *freed = passed, lines
		return rows.Err()
	}
}
