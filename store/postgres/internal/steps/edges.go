package steps

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

func (r *round) scanEdges(rows pgx.Rows) error {
	for rows.Next() {
		var edge rules.Judged
		var anyOf, state int16
		if err := rows.Scan(&edge.Waiter, &edge.Source, &edge.Want, &anyOf, &edge.Met, &state, &edge.Noted); err != nil {
			return err
		}
		edge.AnyOf, edge.State, edge.Found = int(anyOf), store.State(state), state >= 0
		edge.Judge()
		r.edges[edge.Waiter] = append(r.edges[edge.Waiter], edge)
	}
	return rows.Err()
}

func (r *round) scanEdgesToBatches(rows pgx.Rows) error {
	for rows.Next() {
		var edge rules.Judged
		var anyOf int16
		var found, failed, ended bool
		var batch store.Batch
		if err := rows.Scan(&edge.Waiter, &edge.Source, &edge.Want, &anyOf, &edge.Met, &found, &batch.State, &failed, &ended, &batch.Counts.Cancelled); err != nil {
			return err
		}
		if edge.AnyOf = int(anyOf); found {
			edge.OfBatch(&batch, rules.Happened{Failed: failed, Ended: ended})
		}
		edge.Judge()
		r.edges[edge.Waiter] = append(r.edges[edge.Waiter], edge)
	}
	return rows.Err()
}

func (r *round) scanReasons(rows pgx.Rows) error {
	r.reasons = map[uuid.UUID]string{}
	for rows.Next() {
		var id uuid.UUID
		var reason string
		if err := rows.Scan(&id, &reason); err != nil {
			return err
		}
		r.reasons[id] = reason
	}
	return rows.Err()
}

// awaitEnds marks the sources of dependents: their ends leave notices, and retention keeps them.
// It returns those whose ends are still to decide and may be missed, as another transaction has
// them or has just ended them.
func (r *round) awaitEnds(ctx context.Context) (unseen map[uuid.UUID]bool, err error) {
	unseen = map[uuid.UUID]bool{}
	was := map[uuid.UUID]store.State{}
	var ids conn.UUIDs
	for waiter, edges := range r.edges {
		if !r.places[waiter].locked {
			continue
		}
		for i := range edges {
			if edge := &edges[i]; edge.Found && !edge.Noted {
				unseen[edge.Source] = unseen[edge.Source] || edge.Open()
				was[edge.Source] = edge.State
				ids = append(ids, edge.Source)
			}
		}
	}
	if len(ids) == 0 {
		return unseen, nil
	}
	b := r.s.db.NewBatch()
	b.Add(queries.AwaitEnds, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			var state store.State
			if err := rows.Scan(&id, &state); err != nil {
				return err
			}
			if state == was[id] || !state.Terminal() {
				delete(unseen, id)
			}
		}
		return rows.Err()
	})
	return unseen, r.s.db.Send(ctx, r.tx, b)
}
