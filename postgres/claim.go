package postgres

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/postgres/internal/queries"
)

// Heads returns the lanes a worker serves with their first waiting runs.
func (s *Store) Heads(ctx context.Context, serves durable.Serves) ([]durable.Head, error) {
	if err := s.usable(ctx); err != nil {
		return nil, s.fail("heads", err)
	}
	var heads []durable.Head
	b := s.guarded(ctx)
	b.add(queries.Heads, orEmpty(serves.Queues), orEmpty(serves.Jobs)).Query(func(rows pgx.Rows) error {
		heads = heads[:0]
		for rows.Next() {
			var h durable.Head
			var due *time.Time
			var now time.Time
			if err := rows.Scan(&h.Lane, &h.Queue, &h.Job, &h.Priority, &due, &now); err != nil {
				return err
			}
			if due != nil {
				h.Waiting, h.DueAt, h.In = true, *due, due.Sub(now)
			}
			heads = append(heads, h)
		}
		return rows.Err()
	})
	if err := s.send(ctx, s.engine, b); err != nil {
		return nil, s.fail("heads", err)
	}
	return heads, nil
}

// Claim takes due runs. A claim that has been given runs before, so that its
// lease is refused, is answered with those.
func (s *Store) Claim(ctx context.Context, request durable.ClaimRequest) ([]durable.Claimed, error) {
	if err := s.usable(ctx); err != nil {
		return nil, s.fail("claim runs", err)
	}
	worker, err := s.workerID(ctx, request.Worker)
	if err != nil {
		return nil, s.fail("claim runs", err)
	}
	var runs []durable.Claimed
	err = s.repeat(ctx, func() error {
		return s.take(ctx, claimArgs(&request, worker), &runs)
	})
	if err == nil && len(runs) == 0 || code(err) == uniqueViolation {
		err = s.repeat(ctx, func() error {
			b := s.guarded(ctx)
			b.add(queries.ClaimedRuns, uuid.UUID(request.Claim)).Query(scanClaimed(&runs))
			return s.send(ctx, s.engine, b)
		})
	}
	if err != nil {
		return nil, s.fail("claim runs", err)
	}
	return inSteps(runs, request.Steps), nil
}

// heldFor is how long claims look out for runs whose rows others hold, once
// they have met one.
const heldFor = 10 * time.Second

// take claims by the cheap statement, which waits where somebody holds the row
// of a run, and after such a wait by the one that passes over such rows.
func (s *Store) take(ctx context.Context, args []any, runs *[]durable.Claimed) error {
	if !s.held.within(heldFor) {
		b := s.guardedFor(ctx, heldLimit)
		b.add(queries.ClaimRuns, args...).Query(scanClaimed(runs))
		if err := s.send(ctx, s.engine, b); code(err) != lockNotAvailable {
			return err
		}
		s.held.mark()
		s.config.Logger.Warn("somebody holds the row of a waiting run: claiming around it", "for", heldFor)
	}
	b := s.guarded(ctx)
	b.add(queries.ClaimFreeRuns, args...).Query(scanClaimed(runs))
	return s.send(ctx, s.engine, b)
}

func claimArgs(request *durable.ClaimRequest, worker int32) []any {
	n := len(request.Steps)
	lanes, froms := make([]int32, n), make([]time.Time, n)
	skips, takes := make([]int32, n), make([]int32, n)
	for i, step := range request.Steps {
		lanes[i], froms[i] = step.Lane, step.From // the zero time lies before every run
		skips[i], takes[i] = small(step.Skip), small(step.Take)
	}
	return []any{uuid.UUID(request.Claim), worker, micro(request.Duration), request.Alone,
		lanes, froms, skips, takes, small(request.Limit)}
}

// small is a count as the database takes it.
func small(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

func scanClaimed(runs *[]durable.Claimed) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*runs = (*runs)[:0]
		var trace *string // null for most
		for rows.Next() {
			var run durable.Claimed
			var timeout *int64
			err := rows.Scan((*binaryUUID)(&run.ID), &run.Lane, &run.Attempt, &run.MaxAttempts, &run.CrashCount, &run.Fence,
				&run.DueAt, &run.CreatedAt, &timeout, &run.Expired, &trace, &run.Args)
			if err != nil {
				return err
			}
			if timeout != nil {
				run.Timeout = fromMicro(*timeout)
			}
			if trace != nil {
				run.Trace = *trace
			}
			*runs = append(*runs, run)
		}
		return rows.Err()
	}
}

// workerCache remembers the numbers of worker processes.
type workerCache struct {
	mu  sync.Mutex
	ids map[uuid.UUID]int32
}

// workerID returns the number that leases and runs refer to a worker by.
func (s *Store) workerID(ctx context.Context, worker durable.WorkerID) (int32, error) {
	s.workers.mu.Lock()
	id, known := s.workers.ids[worker.Instance]
	s.workers.mu.Unlock()
	if known {
		return id, nil
	}
	return s.registerWorker(ctx, worker)
}

// registerWorker writes the worker down, on a connection of its own.
func (s *Store) registerWorker(ctx context.Context, worker durable.WorkerID) (int32, error) {
	var id int32
	err := s.repeat(ctx, func() (err error) { // another call may do the same for this worker
		id, err = s.queries(s.general).RegisterWorker(ctx, queries.RegisterWorkerParams{Instance: worker.Instance, Name: worker.Name})
		return err
	})
	if err != nil {
		return 0, err
	}
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	s.workers.ids[worker.Instance] = id
	return id, nil
}

// Touch writes the worker's row, on one of the connections that reclaim.
func (s *Store) Touch(ctx context.Context, worker durable.WorkerID) error {
	if err := s.usable(ctx); err != nil {
		return s.fail("touch", err)
	}
	var rows int64
	b := s.guarded(ctx)
	b.add(queries.TouchWorker, worker.Instance).Exec(func(tag pgconn.CommandTag) error {
		rows = tag.RowsAffected()
		return nil
	})
	err := s.send(ctx, s.engine, b)
	if err == nil && rows == 0 {
		_, err = s.registerWorker(ctx, worker)
	}
	if err != nil {
		return s.fail("touch", err)
	}
	return nil
}

// forgetWorkers empties the cache: the tables that the numbers are from have
// gone.
func (s *Store) forgetWorkers() {
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	clear(s.workers.ids)
}

// uuids converts claims to parameters.
func uuids(claims []lease.ClaimID) uuidArray {
	ids := make(uuidArray, len(claims))
	for i, claim := range claims {
		ids[i] = uuid.UUID(claim)
	}
	return ids
}
