package memory

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/store"
)

// Listen calls hear from the calling goroutine until ctx ends.
func (s *Store) Listen(ctx context.Context, hear func(store.Signal)) error {
	box := s.signals.Join()
	defer s.signals.Part(box)
	hear(store.Signal{Kind: store.RunEnded}) // before we listened
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-box.Given():
			for _, signal := range box.Take() {
				hear(signal)
			}
		}
	}
}

// ListenFor is Listen: every listener gets each wake-up.
func (s *Store) ListenFor(ctx context.Context, _ store.Serves, hear func(store.Signal)) error {
	return s.Listen(ctx, hear)
}

// Publish passes a signal on to all that listen.
func (s *Store) Publish(ctx context.Context, signal store.Signal) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	s.signals.Give(signal)
	return nil
}

// hint wakes every listener because runs may be due, without waiting for any. The
// caller holds mu.
func (s *Store) hint() {
	s.limits.freed = false
	s.signals.Give(store.Signal{Kind: store.RunsDue})
}

// hintIf hints if runs wait, or a place was freed for which one waits. The caller
// holds mu.
func (s *Store) hintIf(waiting bool) {
	if waiting || s.limits.freed {
		s.hint()
	}
}
