package reading

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// limitGatesSeen bounds the gates among which the next admission of a limit is looked
// for, and limitShown the permits and the waiters of a gate that are shown.
const (
	limitGatesSeen = 1000
	limitShown     = 100
)

// Gate describes one key of a limit.
func (r *Reader) Gate(ctx context.Context, limit, key string) (store.GateInfo, error) {
	if err := r.schema.Usable(ctx); err != nil {
		return store.GateInfo{}, r.db.Fail("gate", err)
	}
	set := numbers.LimitSet{store.LimitName(limit): nil}
	if err := r.numbers.FindLimits(ctx, r.db.Reading, set, false); err != nil {
		return store.GateInfo{}, r.db.Fail("gate", err)
	}
	known := set[store.LimitName(limit)]
	if known == nil || known.State == store.LimitRemoved {
		return store.GateInfo{}, fmt.Errorf("limit %s: %w", limit, store.ErrNotFound)
	}
	info := store.GateInfo{Limit: known.Limit, Key: key}
	b := r.db.Guarded(ctx)
	askGate(b, &info)
	if err := r.db.Send(ctx, r.db.Reading, b); err != nil {
		return store.GateInfo{}, r.db.Fail("gate", err)
	}
	return info, nil
}

// askGate reads everything about one key of a limit, which info names.
func askGate(b *conn.Batch, info *store.GateInfo) {
	gate := int64(admit.GateOf(&info.Limit, info.Key))
	b.Add(queries.GateUse, gate, int32(CountMost)).QueryRow(func(row pgx.Row) error {
		var next *time.Time
		err := row.Scan(&info.InUse, &info.Waiting.N, &next)
		if info.Waiting.AtLeast = info.Waiting.N == CountMost; info.Waiting.N > 0 {
			info.NextAt = conn.TimesUTC(next)
		}
		return err
	})
	b.Add(queries.GatePermits, gate, int32(limitShown)).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.GatePermitsRow])
		info.Permits = nil
		for _, row := range found {
			info.Permits = append(info.Permits, store.PermitInfo{Owner: row.Owner, Places: int(row.K), Until: store.LimitUntil(row.Until[0]),
				ExpiresAt: conn.TimesUTC(row.ExpiresAt), Runs: row.Runs, Worker: row.Worker})
		}
		return err
	})
	b.Add(queries.GateState, gate).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowTo[*time.Time])
		for _, at := range found {
			info.NotBefore = conn.TimesUTC(at)
		}
		if info.NextAt != nil && info.NotBefore != nil && info.NextAt.Before(*info.NotBefore) {
			info.NextAt = info.NotBefore
		}
		return err
	})
	b.Add(queries.GateWaiters, int32(limitShown), gate, info.Limit.ID).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.GateWaitersRow])
		info.Waiters = []store.Waiter{}
		for _, row := range found {
			info.Waiters = append(info.Waiters, store.Waiter{Run: row.RunID, Job: row.Job, Queue: row.Queue, Priority: int(row.Priority), DueAt: row.DueAt.UTC()})
		}
		return err
	})
}
