package declaring

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// SetQueue pauses or resumes a queue: its row, and the copy in its lanes, which
// is what claims look at.
func (dc *Declarer) SetQueue(ctx context.Context, name string, action store.QueueAction, by string) error {
	if err := store.CheckQueueChange(name, action, by); err != nil {
		return err
	}
	if err := dc.schema.Usable(ctx); err != nil {
		return dc.db.Fail(string(action)+" queue", err)
	}
	wanted := action == store.PauseQueue
	try := func(most time.Duration) error {
		return conn.InTx(ctx, dc.db.General, func(tx pgx.Tx) error {
			q := dc.db.Queries(tx)
			lock, statement := conn.Limits(ctx, most)
			if err := q.Limits(ctx, queries.LimitsParams{LockTimeout: lock, StatementTimeout: statement}); err != nil {
				return err
			}
			paused, err := lockQueue(ctx, q, name, wanted)
			if err != nil || paused == wanted {
				return err
			}
			if err := q.SetQueue(ctx, queries.SetQueueParams{Paused: wanted, Name: name}); err != nil {
				return err
			}
			if err := q.SetLanesPaused(ctx, queries.SetLanesPausedParams{Queue: name}); err != nil {
				return err
			}
			return q.AuditChange(ctx, queries.AuditChangeParams{Actor: by, Kind: rules.KindQueue, Subject: name, Action: string(action)})
		})
	}
	err := dc.db.Briefly(ctx, conn.HeldLimit, conn.LockLimit, func(most time.Duration) error {
		return dc.db.Repeat(ctx, func() error { return try(most) })
	})
	if err != nil {
		return dc.db.Fail(string(action)+" queue", err)
	}
	dc.wake.Hint()
	return nil
}

// lockQueue reports whether a queue is paused and locks its row. It makes the row
// for a pause alone.
func lockQueue(ctx context.Context, q *queries.Queries, name string, pause bool) (paused bool, err error) {
	if pause {
		return q.LockQueue(ctx, queries.LockQueueParams{Name: name})
	}
	rows, err := q.LockKnownQueue(ctx, queries.LockKnownQueueParams{Name: name})
	return err == nil && len(rows) > 0 && rows[0], err
}
