package sqlite

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// listenEvery is how often Listen looks whether another process has written.
const listenEvery = 40 * time.Millisecond

// hints tells the listeners of this process that runs may be due.
type hints struct {
	mu        sync.Mutex // guards the fields below
	listeners map[chan struct{}]struct{}
	ended     bool
}

// join returns a channel that gets hints and is closed when the store is.
func (h *hints) join() chan struct{} {
	hint := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		close(hint)
		return hint
	}
	if h.listeners == nil {
		h.listeners = make(map[chan struct{}]struct{})
	}
	h.listeners[hint] = struct{}{}
	return hint
}

func (h *hints) part(hint chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, hint)
}

// give tells every listener without waiting for any: one hint that has not
// been taken yet stands for all that come after it.
func (h *hints) give() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for hint := range h.listeners {
		select {
		case hint <- struct{}{}:
		default:
		}
	}
}

func (h *hints) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for hint := range h.listeners {
		close(hint)
	}
	h.listeners = nil
}

// Listen calls wake at once when this process has made runs due, and within
// a moment when another process has written anything.
func (s *Store) Listen(ctx context.Context, wake func()) error {
	hint := s.hints.join()
	defer s.hints.part(hint)
	tick := time.NewTicker(listenEvery)
	defer tick.Stop()
	seen, err := s.written(ctx)
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-hint:
			if !open {
				return fmt.Errorf("listen: %w", errClosed)
			}
			wake()
		case <-tick.C:
			var now int64
			if now, err = s.written(ctx); err == nil && now != seen {
				seen = now
				wake()
			}
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("listen: %w", s.explain(err))
}

// written changes when another process has written. It is asked on the writing
// connection, whose own writes do not count; no lock is taken.
func (s *Store) written(ctx context.Context) (int64, error) {
	if err := s.gate.enter(ctx, enqueues); err != nil {
		return 0, err
	}
	defer s.gate.leave()
	if s.closed {
		return 0, errClosed
	}
	if err := s.file.check(); err != nil {
		return 0, err
	}
	return s.dataVersion(context.WithoutCancel(ctx))
}
