package postgres

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Queues lists the queues by name.
func (s *Store) Queues(ctx context.Context) ([]store.QueueInfo, error) {
	var rows []queries.ListQueuesRow
	err := s.inspect(ctx, func(b *conn.Batch) { b.Add(queries.ListQueues).Query(conn.Collect(&rows)) })
	if err != nil {
		return nil, s.db.Fail("queues", err)
	}
	queues := make([]store.QueueInfo, len(rows))
	for i, row := range rows {
		queues[i] = store.QueueInfo{Name: row.Name, Paused: row.Paused}
		if row.Cap >= 0 {
			most := int(row.Cap)
			queues[i].MaxConcurrent = &most
		}
	}
	return queues, nil
}

// SetQueue pauses or resumes a queue: its row, and the copy in its lanes, which
// is what claims look at.
func (s *Store) SetQueue(ctx context.Context, name string, action store.QueueAction, by string) error {
	if err := store.CheckQueueChange(name, action, by); err != nil {
		return err
	}
	if err := s.schema.Usable(ctx); err != nil {
		return s.db.Fail(string(action)+" queue", err)
	}
	wanted := action == store.PauseQueue
	try := func(most time.Duration) error {
		return conn.InTx(ctx, s.db.General, func(tx pgx.Tx) error {
			q := s.db.Queries(tx)
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
	err := s.db.Briefly(ctx, conn.HeldLimit, conn.LockLimit, func(most time.Duration) error {
		return s.db.Repeat(ctx, func() error { return try(most) })
	})
	if err != nil {
		return s.db.Fail(string(action)+" queue", err)
	}
	s.wake.Hint()
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

// Changes lists what was audited, newest first.
func (s *Store) Changes(ctx context.Context, filter store.ChangeFilter) (store.ChangePage, error) {
	limit, err := filter.Most()
	if err != nil {
		return store.ChangePage{}, err
	}
	if err := s.schema.Usable(ctx); err != nil {
		return store.ChangePage{}, s.db.Fail("changes", err)
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	page, err := s.changes(ctx, &filter, limit)
	if err != nil {
		return store.ChangePage{}, s.db.Fail("changes", err)
	}
	return page, nil
}

func (s *Store) changes(ctx context.Context, filter *store.ChangeFilter, limit int) (page store.ChangePage, err error) {
	before := filter.Before
	if before == 0 {
		before = math.MaxInt64
	}
	list, floor := queries.ChangesOf, int64(0)
	if filter.Kind == "" || filter.Subject == "" {
		list = queries.Changes
		rows, err := s.db.Queries(s.db.Reading).FloorOfChanges(ctx, queries.FloorOfChangesParams{Before: before, Skip: pageMost - 1})
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
	b := s.db.Guarded(ctx)
	b.Add(list, before, floor, filter.Kind, filter.Subject, filter.By, filter.Action, since, conn.Small(limit)).Query(func(found pgx.Rows) error {
		page = store.ChangePage{Changes: []store.Change{}, Next: floor}
		rows, err := pgx.CollectRows(found, pgx.RowToStructByPos[queries.ChangesRow])
		for _, row := range rows {
			page.Changes = append(page.Changes, toChange(&row))
		}
		return err
	})
	if err := s.db.Send(ctx, s.db.Reading, b); err != nil {
		return page, err
	}
	if len(page.Changes) == limit {
		page.Next = page.Changes[limit-1].ID
	}
	return page, nil
}
