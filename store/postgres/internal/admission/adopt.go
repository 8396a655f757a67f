package admission

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
