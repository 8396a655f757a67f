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
// database's clock was set back.
const clampEvery = time.Minute

// Reclaim takes back the runs of expired leases.
func (s *Store) Reclaim(ctx context.Context, request durable.ReclaimRequest) (durable.Reclaim, error) {
	if err := s.usable(ctx); err != nil {
		return durable.Reclaim{}, s.fail("reclaim runs", err)
	}
	var done durable.Reclaim
	err := s.repeat(ctx, func() error {
		b := s.guarded(ctx)
		if s.clampDue() {
			b.add(queries.ClampLeases)
		}
		b.add(queries.ReclaimRuns, timeOrNull(request.Horizon), small(request.Limit), small(request.MaxCrashes)).
			Query(scanReclaimed(&done))
		return s.send(ctx, s.engine, b)
	})
	if err != nil {
		return durable.Reclaim{}, s.fail("reclaim runs", err)
	}
	for i := range done.Runs {
		if done.Runs[i].State == durable.Pending {
			s.hint()
			break
		}
	}
	return done, nil
}

func (s *Store) clampDue() bool {
	now := int64(lease.Elapsed())
	last := s.clamped.Load()
	return now-last > int64(clampEvery) && s.clamped.CompareAndSwap(last, now)
}

// scanReclaimed reads one row for each run taken back, and at least one.
func scanReclaimed(done *durable.Reclaim) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*done = durable.Reclaim{}
		for rows.Next() {
			var id *uuid.UUID
			var laneID *int32
			var queue, job, worker *string
			var state, crashes *int16
			if err := rows.Scan(&done.Now, &done.Leases, &id, &laneID, &queue, &job, &worker, &state, &crashes); err != nil {
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
		return rows.Err()
	}
}
