package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// NoteWait notes that a process waits for a name. What lapsed long ago is
// deleted on the way.
func (l locks) NoteWait(ctx context.Context, wait lock.Wait, d time.Duration) error {
	if err := wait.Validate(); err != nil {
		return fmt.Errorf("note wait: %w", err)
	}
	s := l.store
	err := s.db.Repeat(ctx, func() error {
		q := s.db.Queries(s.db.General)
		if wait.Calls == 0 {
			return q.DeleteWait(ctx, queries.DeleteWaitParams{Name: wait.Name, Waiter: uuid.UUID(wait.Waiter)})
		}
		b := s.db.NewBatch()
		b.Add(queries.NoteWait, wait.Name, uuid.UUID(wait.Waiter), conn.Micro(d), conn.Small(wait.Calls), wait.Owner)
		b.Add(queries.DeleteLapsedWaits)
		return s.db.Send(ctx, s.db.General, b)
	})
	if err != nil {
		return s.db.Fail("note wait", err)
	}
	return nil
}

// ListWaits lists the notes that stand.
func (l locks) ListWaits(ctx context.Context, prefix string, limit int) ([]lock.Wait, error) {
	if err := lock.CheckPrefix(prefix); err != nil {
		return nil, fmt.Errorf("list waits: %w", err)
	}
	s := l.store
	rows, err := s.db.Queries(s.db.Reading).ListWaits(ctx, queries.ListWaitsParams{Prefix: prefix, Most: conn.Small(limit)})
	if err != nil {
		return nil, s.db.Fail("list waits", err)
	}
	waits := make([]lock.Wait, len(rows))
	for i, row := range rows {
		waits[i] = lock.Wait{
			Name: row.Name, Waiter: lease.ClaimID(row.Waiter), Owner: row.Owner, Calls: int(row.Calls), Since: row.Since.UTC(),
		}
	}
	return waits, nil
}

// HearFreed listens on a connection of its own. Through a transaction pooler
// nothing is heard.
func (l locks) HearFreed(ctx context.Context, waiter lease.ClaimID, hear func(name string)) error {
	s := l.store
	me := uuid.UUID(waiter).String()
	heard := func(payload string) {
		if woken, name, ok := strings.Cut(payload, " "); ok && woken == me {
			hear(name)
		}
	}
	err := s.wake.Receive(ctx, s.db.Names.FreedChannel(), func() { hear("") }, heard)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("listen for releases: %w", err)
	}
	return nil
}
