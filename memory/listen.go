package memory

import "context"

// Listen calls wake from the calling goroutine until ctx ends.
func (s *Store) Listen(ctx context.Context, wake func()) error {
	hints := make(chan struct{}, 1)
	s.mu.Lock()
	s.listeners[hints] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, hints)
		s.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hints:
			wake()
		}
	}
}

// hint tells every listener, without waiting for any: one hint that has not
// been taken yet stands for all that come after it.
func (s *Store) hint() {
	for hints := range s.listeners {
		select {
		case hints <- struct{}{}:
		default:
		}
	}
}
