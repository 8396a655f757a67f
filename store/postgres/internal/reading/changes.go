package reading

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Changes lists what was audited, newest first.
func (r *Reader) Changes(ctx context.Context, filter store.ChangeFilter) (store.ChangePage, error) {
	limit, err := filter.Most()
	if err != nil {
		return store.ChangePage{}, err
	}
	if err := r.schema.Usable(ctx); err != nil {
		return store.ChangePage{}, r.db.Fail("changes", err)
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	page, err := r.changes(ctx, &filter, limit)
	if err != nil {
		return store.ChangePage{}, r.db.Fail("changes", err)
	}
	return page, nil
}

func (r *Reader) changes(ctx context.Context, filter *store.ChangeFilter, limit int) (page store.ChangePage, err error) {
	before := filter.Before
	if before == 0 {
		before = math.MaxInt64
	}
	list, floor := queries.ChangesOf, int64(0)
	if filter.Kind == "" || filter.Subject == "" {
		list = queries.Changes
		rows, err := r.db.Queries(r.db.Reading).FloorOfChanges(ctx, queries.FloorOfChangesParams{Before: before, Skip: pageMost - 1})
		if err != nil {
			return page, err
		}
		for _, id := range rows {
			floor = id
		}
	}
	since := filter.Since
	if since.IsZero() {
		since = time.Unix(0, 0)
	}
	b := r.db.Guarded(ctx)
	b.Add(list, before, floor, filter.Kind, filter.Subject, filter.By, filter.Action, since, conn.Small(limit)).Query(func(found pgx.Rows) error {
		page = store.ChangePage{Changes: []store.Change{}, Next: floor}
		rows, err := pgx.CollectRows(found, pgx.RowToStructByPos[queries.ChangesRow])
		for _, row := range rows {
			page.Changes = append(page.Changes, toChange(&row))
		}
		return err
	})
	if err := r.db.Send(ctx, r.db.Reading, b); err != nil {
		return page, err
	}
	if len(page.Changes) == limit {
		page.Next = page.Changes[limit-1].ID
	}
	return page, nil
}

func toChange(row *queries.ChangesRow) store.Change {
	change := store.Change{ID: row.ID, At: row.At.UTC(), Actor: row.Actor, Kind: row.Kind, Subject: row.Subject, Action: row.Action, Runs: row.Runs}
	if row.Detail != "" {
		change.Detail = json.RawMessage(row.Detail)
	}
	return change
}
