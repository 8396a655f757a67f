package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// countMost bounds how many rows of one lane are counted.
const countMost = 100_000

// Queues lists the queues by name.
func (s *Store) Queues(ctx context.Context) ([]store.QueueInfo, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("queues: %w", s.explain(err))
	}
	rows, err := reader.ListQueues(ctx)
	if err != nil {
		return nil, fmt.Errorf("queues: %w", s.explain(err))
	}
	queues := make([]store.QueueInfo, len(rows))
	for i, row := range rows {
		queues[i] = store.QueueInfo{Name: row.Name, Paused: row.Paused != 0}
		if row.Cap >= 0 {
			most := int(row.Cap)
			queues[i].MaxConcurrent = &most
		}
	}
	return queues, nil
}

// SetQueue pauses or resumes a queue.
func (s *Store) SetQueue(ctx context.Context, name string, action store.QueueAction, by string) error {
	if err := store.CheckQueueChange(name, action, by); err != nil {
		return err
	}
	var wanted int64
	if action == store.PauseQueue {
		wanted = 1
	}
	err := s.write(ctx, reclaims, func(ctx context.Context, c *change) error {
		paused, err := c.FindQueue(ctx, queries.FindQueueParams{Name: name})
		if err != nil && !errors.Is(err, sql.ErrNoRows) || err == nil && paused == wanted || err != nil && wanted == 0 {
			return unlessNone(err)
		}
		if err := c.SetQueue(ctx, queries.SetQueueParams{Name: name, Paused: wanted}); err != nil {
			return err
		}
		return c.audit(ctx, rules.KindQueue, name, string(action), by, nil)
	})
	if err != nil {
		return fmt.Errorf("%s queue: %w", action, err)
	}
	s.hint()
	return nil
}

// Changes lists what was audited, newest first.
func (s *Store) Changes(ctx context.Context, filter store.ChangeFilter) (store.ChangePage, error) {
	limit, err := filter.Most()
	if err != nil {
		return store.ChangePage{}, err
	}
	reader, err := s.read(ctx)
	var page store.ChangePage
	if err == nil {
		page, err = reader.changes(ctx, &filter, limit)
	}
	if err != nil {
		return store.ChangePage{}, fmt.Errorf("changes: %w", s.explain(err))
	}
	return page, nil
}

func (l *lookups) changes(ctx context.Context, filter *store.ChangeFilter, limit int) (page store.ChangePage, err error) {
	ask := queries.ListChangesParams{Before: filter.Before, Kind: filter.Kind, Subject: filter.Subject, Actor: filter.By, Action: filter.Action, Most: int64(limit)}
	if ask.Before == 0 {
		ask.Before = math.MaxInt64
	}
	if !filter.Since.IsZero() {
		ask.Since = filter.Since.UnixMicro()
	}
	var rows []queries.Audit
	if filter.Kind != "" && filter.Subject != "" {
		rows, err = l.ListChangesOf(ctx, queries.ListChangesOfParams{Before: ask.Before, Kind: filter.Kind, Subject: filter.Subject,
			Actor: ask.Actor, Action: ask.Action, Since: ask.Since, Most: ask.Most})
	} else {
		page.Next, err = l.FloorOfChanges(ctx, queries.FloorOfChangesParams{Before: ask.Before, Skip: pageMost - 1})
		if err = unlessNone(err); err == nil {
			ask.FromID = page.Next
			rows, err = l.ListChanges(ctx, ask)
		}
	}
	if err != nil {
		return page, err
	}
	page.Changes = make([]store.Change, len(rows))
	for i, row := range rows {
		page.Changes[i] = store.Change{ID: row.ID, At: instant(row.At), Actor: row.Actor, Kind: row.Kind, Subject: row.Subject, Action: row.Action}
		if row.Detail != nil {
			page.Changes[i].Detail = json.RawMessage(*row.Detail)
		}
		if row.Runs != nil {
			page.Changes[i].Runs = *row.Runs
		}
	}
	if len(rows) == limit {
		page.Next = rows[limit-1].ID
	}
	return page, nil
}
