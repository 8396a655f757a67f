package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// waitNote is what a process has noted of its waiting for a lock.
type waitNote struct {
	lock.Wait
	until time.Time
}

// listener is one listener for releases.
type listener struct {
	given chan struct{} // has room for one
	names []string      // freed and not yet heard
}

// NoteWait notes that a process waits for a name.
func (l locks) NoteWait(ctx context.Context, wait lock.Wait, d time.Duration) error {
	if err := firstOf(ctx.Err(), wait.Validate()); err != nil {
		return fmt.Errorf("note wait: %w", err)
	}
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	notes := slices.DeleteFunc(s.waits, func(n *waitNote) bool { return !n.until.After(now) })
	i := slices.IndexFunc(notes, func(n *waitNote) bool { return n.Waiter == wait.Waiter && n.Name == wait.Name })
	wait.Since = now
	switch {
	case wait.Calls == 0 && i >= 0:
		notes = slices.Delete(notes, i, i+1)
	case wait.Calls == 0:
	case i >= 0:
		wait.Since = notes[i].Since
		*notes[i] = waitNote{wait, now.Add(d)}
	default:
		notes = append(notes, &waitNote{wait, now.Add(d)})
	}
	s.waits = notes
	return nil
}

// ListWaits lists the notes that stand.
func (l locks) ListWaits(ctx context.Context, prefix string, limit int) ([]lock.Wait, error) {
	if err := lock.CheckPrefix(prefix); err != nil {
		return nil, fmt.Errorf("list waits: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list waits: %w", err)
	}
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	var waits []lock.Wait
	for _, n := range s.waits {
		if n.until.After(s.now()) && strings.HasPrefix(n.Name, prefix) {
			waits = append(waits, n.Wait)
		}
	}
	slices.SortFunc(waits, func(a, b lock.Wait) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Since.Compare(b.Since)) })
	return waits[:min(len(waits), max(limit, 0))], nil
}

// tellFreed reports one of those who wait for a name, the one after the last.
func (s *Store) tellFreed(name string) {
	for i, n := range s.waits {
		if n.Name != name || !n.until.After(s.now()) {
			continue
		}
		s.waits = append(slices.Delete(s.waits, i, i+1), n)
		if e := s.listeners[n.Waiter]; e != nil {
			e.tell(name)
		}
		return
	}
}

func (e *listener) tell(name string) {
	if !slices.Contains(e.names, name) {
		e.names = append(e.names, name)
	}
	select {
	case e.given <- struct{}{}:
	default:
	}
}

// HearFreed calls hear from the calling goroutine until ctx ends.
func (l locks) HearFreed(ctx context.Context, waiter lease.ClaimID, hear func(name string)) error {
	s := l.store
	e := &listener{given: make(chan struct{}, 1)}
	s.mu.Lock()
	s.listeners[waiter] = e
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.listeners[waiter] == e {
			delete(s.listeners, waiter)
		}
	}()
	hear("")
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.given:
			s.mu.Lock()
			names := e.names
			e.names = nil
			s.mu.Unlock()
			for _, name := range names {
				hear(name)
			}
		}
	}
}
