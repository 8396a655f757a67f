package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// listenEvery is how often Listen looks whether another process has written.
const listenEvery = 40 * time.Millisecond

// hint reports the listeners of this process that runs may be due.
func (s *Store) hint() { s.signals.Give(store.Signal{Kind: store.RunsDue}) }

// ListenFor is Listen: every listener gets each wake-up.
func (s *Store) ListenFor(ctx context.Context, _ store.Serves, hear func(store.Signal)) error {
	return s.Listen(ctx, hear)
}

// Publish passes a signal on to the listeners of this process. Those of other
// processes see that the file has changed, not why.
func (s *Store) Publish(ctx context.Context, signal store.Signal) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	s.signals.Give(signal)
	return nil
}

// Listen calls hear immediately for what is published in this process, and within
// a moment when another process has written anything: then runs may be due, and
// some may have ended.
func (s *Store) Listen(ctx context.Context, hear func(store.Signal)) error {
	box := s.signals.Join()
	defer s.signals.Part(box)
	tick := time.NewTicker(listenEvery)
	defer tick.Stop()
	seen, err := s.written(ctx)
	if err == nil {
		hear(store.Signal{Kind: store.RunEnded}) // before we listened
		s.hearNotices(ctx, hear)
	}
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-box.Given():
			if !open {
				return fmt.Errorf("listen: %w", errClosed)
			}
			for _, signal := range box.Take() {
				hear(signal)
			}
		case <-tick.C:
			var now int64
			if now, err = s.written(ctx); err == nil && now != seen {
				seen = now
				hear(store.Signal{Kind: store.RunsDue})
				hear(store.Signal{Kind: store.RunEnded})
				s.hearNotices(ctx, hear)
			}
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("listen: %w", s.explain(err))
}

// hearNotices notifies a listener of inputs that were sent in a transaction of a user's, whose
// commit the store does not see. It is a hint: where the notices cannot be read, a worker that
// releases runs says why.
func (s *Store) hearNotices(ctx context.Context, hear func(store.Signal)) {
	reader, err := s.read(ctx)
	if err != nil {
		return
	}
	if next, err := s.nextDue(ctx, reader.Queries, s.clock.now()); err == nil && next == 0 {
		hear(store.Signal{Kind: store.NoticesLeft})
	}
}

// written changes when another process has written. It is asked on the writing
// connection, whose own writes do not count; no lock is taken.
func (s *Store) written(ctx context.Context) (int64, error) {
	if err := s.queue.enter(ctx, enqueues); err != nil {
		return 0, err
	}
	defer s.queue.leave()
	if s.closed {
		return 0, errClosed
	}
	if err := s.file.check(); err != nil {
		return 0, err
	}
	return s.dataVersion(context.WithoutCancel(ctx))
}
