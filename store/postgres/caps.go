package postgres

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// A capped queue is paused for claims of runs that are not limited, whatever program sends
// them. Its runs are stored as those of any queue; a claim that meets them moves them into
// the line of the cap, and an admission adds the cap to those that wait for another limit.
// So the cap applies to runs that were pending when it was set, to runs that an older program
// enqueues, and to retries.

// adoptRuns moves runs of capped queues that the steps would claim into the lines of the
// caps, and wakes workers for them. Runs that cannot be moved wait; runs of other queues do
// not wait for them.
func (s *Store) adoptRuns(ctx context.Context, steps []store.Step) {
	capped := s.capped.Among(steps)
	if len(capped) == 0 {
		return
	}
	lanes, takes := make([]int32, len(capped)), make([]int32, len(capped))
	for i, step := range capped {
		lanes[i], takes[i] = step.Lane, conn.Small(step.Take)
	}
	var moved []store.Due
	err := s.db.Repeat(ctx, func() error {
		b := s.db.Guarded(ctx)
		b.Add(queries.AdoptRuns, lanes, takes).Query(func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, pgx.RowTo[store.LaneID])
			moved = moved[:0]
			for _, lane := range found {
				moved = append(moved, store.Due{Lane: max(lane, -lane), Runs: 1, Limited: true})
			}
			return err
		})
		return s.db.Send(ctx, s.db.Engine, b)
	})
	if err != nil {
		if ctx.Err() == nil {
			s.db.Log.Error("the runs of capped queues could not be put under their caps: they wait", "event", "limit.caps_not_applied", "error", err)
		}
		return
	}
	s.wake.HintDue(moved)
}

// queueCap is the cap of a queue.
type queueCap struct {
	gate  int64
	queue string
}

// adopt adds the caps of their queues to the waiters of the admission's lanes that do not
// have them. A waiter whose rows another transaction holds keeps its place.
func (a *admission) adopt(ctx context.Context) error {
	if len(a.caps) == 0 {
		return nil
	}
	var c candidates
	var caps []int64
	var names []string
	lacking := map[store.RunID]*admit.Waiter{}
	for i := range a.input.Waiters {
		w := &a.input.Waiters[i]
		of, capped := a.caps[w.Lane]
		if !capped || !slices.Contains(a.request.Lanes, w.Lane) || a.hasCap(w, of) {
			continue
		}
		c.add(w)
		caps, names = append(caps, of.gate), append(names, store.QueueCap(of.queue))
		lacking[w.Run] = w
	}
	if len(c.ids) == 0 {
		return nil
	}
	b := a.db.NewBatch()
	b.Add(queries.AdoptWaiters, c.gates, c.lanes, c.dues, c.ids, caps, names).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			var texts []string
			if err := rows.Scan((*conn.BinaryUUID)(&id), &texts); err != nil {
				return err
			}
			a.said[id] = numbers.UsesOf(texts)
			delete(lacking, id)
		}
		return rows.Err()
	})
	if err := a.db.Send(ctx, a.session, b); err != nil {
		return err
	}
	for _, w := range lacking {
		w.Held = true
	}
	return nil
}

// hasCap reports whether the uses of a waiter include a cap. A waiter without stored uses has
// only the limit in whose line it waits.
func (a *admission) hasCap(w *admit.Waiter, of queueCap) bool {
	said, more := a.said[w.Run]
	if !more {
		return int64(w.Gate) == of.gate
	}
	name := store.QueueCap(of.queue)
	return slices.ContainsFunc(said, func(use store.LimitUse) bool { return use.Limit == name })
}

// capQueue makes a queue capped as its cap says, after it was changed.
func (c *limitChanging) capQueue(ctx context.Context, queue string, limit *store.Limit) error {
	gate := int64(0)
	if limit.State == store.LimitActive || limit.State == store.LimitDraining {
		gate = int64(admit.Unkeyed(limit.ID))
	}
	if err := c.q.CapQueue(ctx, queries.CapQueueParams{Gate: gate, Name: queue}); err != nil {
		return err
	}
	if err := c.q.SetLanesPaused(ctx, queries.SetLanesPausedParams{Queue: queue}); err != nil {
		return err
	}
	return c.q.CapLanes(ctx, queries.CapLanesParams{Queue: queue})
}
