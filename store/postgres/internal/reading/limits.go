package reading

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// ListLimits lists the limits by name.
func (r *Reader) ListLimits(ctx context.Context, filter store.LimitFilter) ([]store.LimitInfo, error) {
	if err := r.schema.Usable(ctx); err != nil {
		return nil, r.db.Fail("list limits", err)
	}
	names := []string{}
	for _, name := range filter.Names {
		names = append(names, store.LimitName(name))
	}
	rows, err := r.db.Queries(r.db.Reading).ListLimits(ctx, queries.ListLimitsParams{Names: names})
	if err != nil {
		return nil, r.db.Fail("list limits", err)
	}
	infos := []store.LimitInfo{}
	b := r.db.Guarded(ctx)
	for _, row := range rows {
		if !filter.Caps && store.IsCap(row.Name) {
			continue
		}
		infos = append(infos, store.LimitInfo{
			Limit: numbers.LimitOf(&queries.ReadLimitsRow{ID: row.ID, Name: row.Name, Kind: row.Kind, Most: row.Most, Period: row.Period, Burst: row.Burst,
				Buckets: row.Buckets, KeyLeast: row.KeyLeast, KeyMost: row.KeyMost, Action: row.Action, RetryAfter: row.RetryAfter, State: row.State, Secret: row.Secret}),
			Edited: row.Edited, DeclaredAt: conn.TimesUTC(row.DeclaredAt),
		})
	}
	for i := range infos {
		info := &infos[i]
		info.Done = r.tally.Of(info.ID)
		first, last := numbers.GatesOf(info.ID)
		b.Add(queries.LimitInUse, first, last, int32(CountMost)).QueryRow(func(row pgx.Row) error {
			var oldest time.Time
			err := row.Scan(&info.Waiting.N, &info.InUse.N, &oldest)
			if info.Waiting.N > 0 {
				info.OldestDue = conn.TimesUTC(&oldest)
			}
			info.Waiting.AtLeast, info.InUse.AtLeast = info.Waiting.N == CountMost, info.InUse.N >= CountMost
			return err
		})
		b.Add(queries.NextOfLimit, first-1, last, int32(limitGatesSeen)).Query(func(rows pgx.Rows) error {
			next, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
			for i := range next {
				info.NextAt = conn.TimesUTC(&next[i])
			}
			return err
		})
	}
	if len(infos) == 0 {
		return infos, nil
	}
	if err := r.db.Send(ctx, r.db.Reading, b); err != nil {
		return nil, r.db.Fail("list limits", err)
	}
	return infos, nil
}

// CheckLimits looks for violations of the invariants of limits.
func (r *Reader) CheckLimits(ctx context.Context) ([]store.LimitFault, error) {
	if err := r.schema.Usable(ctx); err != nil {
		return nil, r.db.Fail("check limits", err)
	}
	rows, err := r.LimitFaults(ctx)
	if err != nil {
		return nil, r.db.Fail("check limits", err)
	}
	faults := make([]store.LimitFault, len(rows))
	for i := range rows {
		row := &rows[i]
		run, _ := uuid.Parse(row.Run) // empty: none
		faults[i] = rules.LimitFault(store.LimitFaultKind(row.Fault), row.Name, row.Key, run, int(row.Used), int(row.Most))
	}
	return faults, nil
}

// LimitFaults returns the violations of the invariants of limits, as rows.
func (r *Reader) LimitFaults(ctx context.Context) (found []queries.CheckLimitsRow, err error) {
	b := r.db.Guarded(ctx)
	b.Add(queries.CheckLimits, int32(rules.FaultsGates), int32(rules.FaultsMost), int32(rules.FaultsLines)).Query(func(rows pgx.Rows) error {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[queries.CheckLimitsRow])
		return err
	})
	return found, r.db.Send(ctx, r.db.General, b)
}
