package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// NoteWait notes that a process waits for a name. What has lapsed is deleted on
// the way.
func (l locks) NoteWait(ctx context.Context, wait lock.Wait, d time.Duration) error {
	if err := wait.Validate(); err != nil {
		return fmt.Errorf("note wait: %w", err)
	}
	err := l.store.write(ctx, claims, func(ctx context.Context, c *change) error {
		if err := c.DeleteLapsedWaits(ctx, queries.DeleteLapsedWaitsParams{Before: c.now}); err != nil {
			return err
		}
		if wait.Calls == 0 {
			return c.DeleteWait(ctx, queries.DeleteWaitParams{Name: wait.Name, Waiter: wait.Waiter[:]})
		}
		return c.NoteWait(ctx, queries.NoteWaitParams{
			Name: wait.Name, Waiter: wait.Waiter[:], Since: c.now, Until: c.now + d.Microseconds(), Calls: int64(wait.Calls), Owner: wait.Owner,
		})
	})
	if err != nil {
		return fmt.Errorf("note wait: %w", err)
	}
	return nil
}

// tell counts up one of those who wait for a name.
func (l locks) tell(ctx context.Context, c *change, name string) error {
	woken, err := c.TellWait(ctx, queries.TellWaitParams{Name: name, Now: c.now})
	if woken > 0 {
		l.store.woken.Add(1)
	}
	return err
}

// ListWaits lists the notes that stand.
func (l locks) ListWaits(ctx context.Context, prefix string, limit int) ([]lock.Wait, error) {
	if err := lock.CheckPrefix(prefix); err != nil {
		return nil, fmt.Errorf("list waits: %w", err)
	}
	reader, err := l.store.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("list waits: %w", l.store.explain(err))
	}
	rows, err := reader.ListWaits(ctx, queries.ListWaitsParams{Now: l.store.clock.now(), Prefix: prefix, Most: int64(max(limit, 0))})
	if err != nil {
		return nil, fmt.Errorf("list waits: %w", l.store.explain(err))
	}
	waits := make([]lock.Wait, len(rows))
	for i, row := range rows {
		waits[i] = lock.Wait{
			Name: row.Name, Waiter: lease.ClaimID(row.Waiter), Owner: row.Owner, Calls: int(row.Calls), Since: instant(row.Since),
		}
	}
	return waits, nil
}

// HearFreed examines the waiter's notes when this process has ended a transaction or
// another has written anything.
func (l locks) HearFreed(ctx context.Context, waiter lease.ClaimID, hear func(name string)) error {
	s := l.store
	tick := time.NewTicker(listenEvery)
	defer tick.Stop()
	woken := s.woken.Load()
	written, err := s.written(ctx)
	before := map[string]int64{}
	if err == nil {
		hear("")
	}
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var now int64
		if now, err = s.written(ctx); err == nil && (now != written || s.woken.Load() != woken) {
			woken, written = s.woken.Load(), now
			err = l.hearOwn(ctx, waiter, before, hear)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("listen for releases: %w", s.explain(err))
}

// hearOwn compares the waiter's notes with what they were before.
func (l locks) hearOwn(ctx context.Context, waiter lease.ClaimID, before map[string]int64, hear func(name string)) error {
	reader, err := l.store.read(ctx)
	if err != nil {
		return err
	}
	rows, err := reader.OwnWaits(ctx, queries.OwnWaitsParams{Waiter: waiter[:]})
	if err != nil {
		return err
	}
	now := make(map[string]int64, len(rows))
	for _, row := range rows {
		now[row.Name] = row.Freed
		if row.Freed > before[row.Name] {
			hear(row.Name)
		}
	}
	clear(before)
	for name, freed := range now {
		before[name] = freed
	}
	return nil
}
