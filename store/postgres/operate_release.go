package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// release makes dependents due whose conditions are not met. One that another transaction has
// locked, or has released meanwhile, is left without an answer, and examined again.
func (o *operation) release(ctx context.Context, held conn.UUIDs) error {
	if len(held) == 0 {
		return nil
	}
	var locked, met conn.UUIDs
	lock := o.store.db.NewBatch()
	lock.Add(queries.LockNoticed, held).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var row queries.LockNoticedRow
			var dueAt time.Time
			if err := rows.Scan(&row.ID, &row.State, &row.Locked, &row.Lane, &dueAt, &row.Limited); err != nil {
				return err
			}
			if row.Locked {
				locked = append(locked, row.ID)
			}
		}
		return rows.Err()
	})
	if err := o.store.db.Send(ctx, o.tx, lock); err != nil || len(locked) == 0 {
		return err
	}
	meet := o.store.db.NewBatch()
	meet.Add(queries.MeetAll, locked, o.command.By, string(o.command.Detail()), o.command.Bulk == nil).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(id uuid.UUID) { met = append(met, id); o.change(id, store.Pending) })
	})
	if err := o.store.db.Send(ctx, o.tx, meet); err != nil || len(met) == 0 {
		return err
	}
	due := o.store.db.NewBatch()
	due.Add(queries.ReleaseReady, met)
	due.Add(queries.ReleaseWaiting, met)
	if err := o.store.db.Send(ctx, o.tx, due); err != nil {
		return err
	}
	return o.auditBulk(ctx)
}
