package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// Queues lists the queues by name.
func (s *Store) Queues(ctx context.Context) ([]store.QueueInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("queues: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[string]*store.QueueInfo{}
	for name, paused := range s.queues {
		known[name] = &store.QueueInfo{Name: name, Paused: paused}
	}
	for name, limit := range s.caps {
		most := limit.Max
		known[name].MaxConcurrent = &most
	}
	for _, l := range s.lanes {
		if known[l.name.queue] == nil {
			known[l.name.queue] = &store.QueueInfo{Name: l.name.queue}
		}
	}
	queues := []store.QueueInfo{}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		queues = append(queues, *known[name])
	}
	return queues, nil
}

// SetQueue pauses or resumes a queue.
func (s *Store) SetQueue(ctx context.Context, name string, action store.QueueAction, by string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s queue: %w", action, err)
	}
	if err := store.CheckQueueChange(name, action, by); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	paused := action == store.PauseQueue
	if s.queues[name] == paused {
		return nil
	}
	s.queues[name] = paused
	s.note(change{at: s.now(), kind: rules.KindQueue, subject: name, what: string(action), by: by})
	s.hint()
	return nil
}

// change is what an operator or a policy did, and to what.
type change struct {
	id                  int64 // from 1
	at                  time.Time
	kind, subject, what string
	by                  string
	detail              json.RawMessage
	runs                int64 // of a bulk change
}

// changesKept bounds the changes that are remembered.
const changesKept = 10_000

// note records a change. The caller holds mu.
func (s *Store) note(c change) {
	c.id = 1
	if n := len(s.audit); n > 0 {
		c.id = s.audit[n-1].id + 1
	}
	s.audit = append(s.audit, c)
	s.audit = s.audit[max(len(s.audit)-changesKept, 0):]
}

// noteSchedule records a change of a schedule. The caller holds mu.
func (s *Store) noteSchedule(at time.Time, schedule, what, by string) {
	s.note(change{at: at, kind: rules.KindSchedule, subject: schedule, what: what, by: by})
}

// Changes lists changes, newest first.
func (s *Store) Changes(ctx context.Context, filter store.ChangeFilter) (store.ChangePage, error) {
	if err := ctx.Err(); err != nil {
		return store.ChangePage{}, fmt.Errorf("changes: %w", err)
	}
	limit, err := filter.Most()
	if err != nil {
		return store.ChangePage{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	page := store.ChangePage{Changes: []store.Change{}}
	for _, c := range slices.Backward(s.audit) {
		if !c.passes(&filter) {
			continue
		}
		page.Changes = append(page.Changes, c.toChange())
		if len(page.Changes) == limit {
			page.Next = c.id
			break
		}
	}
	return page, nil
}

func (c *change) toChange() store.Change {
	return store.Change{ID: c.id, At: c.at, Actor: c.by, Kind: c.kind, Subject: c.subject, Action: c.what, Detail: slices.Clone(c.detail), Runs: c.runs}
}

func (c *change) passes(filter *store.ChangeFilter) bool {
	return (filter.Kind == "" || filter.Kind == c.kind) && (filter.Subject == "" || filter.Subject == c.subject) &&
		(filter.By == "" || filter.By == c.by) && (filter.Action == "" || filter.Action == c.what) &&
		!c.at.Before(filter.Since) && (filter.Before == 0 || c.id < filter.Before)
}

// noteBulk adds a run to the change that a bulk change is. The caller holds mu.
func (s *Store) noteBulk(at time.Time, order *store.RunCommand) {
	bulk := order.Bulk.ID.String()
	for i := len(s.audit) - 1; i >= 0; i-- {
		if c := &s.audit[i]; c.kind == rules.KindBulk && c.subject == bulk {
			c.runs++
			return
		}
	}
	s.note(change{at: at, kind: rules.KindBulk, subject: bulk, what: string(order.Action), by: order.By, detail: order.Detail(), runs: 1})
}
