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
	look, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("queues: %w", s.explain(err))
	}
	rows, err := look.ListQueues(ctx, queries.ListQueuesParams{Most: countMost})
	if err != nil {
		return nil, fmt.Errorf("queues: %w", s.explain(err))
	}
	queues := make([]store.QueueInfo, len(rows))
	for i, row := range rows {
		queues[i] = store.QueueInfo{Name: row.Name, Paused: row.Paused != 0,
			Pending: store.Count{N: row.Pending, AtLeast: row.Pending >= countMost}}
		if row.Oldest != math.MaxInt64 {
			queues[i].OldestDue = instantOrNil(&row.Oldest)
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
func (s *Store) Changes(ctx context.Context, filter store.ChangeFilter) ([]store.Change, error) {
	limit, err := filter.Most()
	if err != nil {
		return nil, err
	}
	look, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("changes: %w", s.explain(err))
	}
	before := filter.Before
	if before == 0 {
		before = math.MaxInt64
	}
	var rows []queries.Audit
	if filter.Kind != "" && filter.Subject != "" {
		rows, err = look.ListChangesOf(ctx, queries.ListChangesOfParams{Before: before, Kind: filter.Kind, Subject: filter.Subject, Most: int64(limit)})
	} else {
		rows, err = look.ListChanges(ctx, queries.ListChangesParams{Before: before, Kind: filter.Kind, Subject: filter.Subject, Most: int64(limit)})
	}
	if err != nil {
		return nil, fmt.Errorf("changes: %w", s.explain(err))
	}
	changes := make([]store.Change, len(rows))
	for i, row := range rows {
		changes[i] = store.Change{ID: row.ID, At: instant(row.At), Actor: row.Actor, Kind: row.Kind, Subject: row.Subject, Action: row.Action}
		if row.Detail != nil {
			changes[i].Detail = json.RawMessage(*row.Detail)
		}
	}
	return changes, nil
}
