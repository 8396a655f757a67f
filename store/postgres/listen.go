package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// Publish sends a signal to all listeners, together with the others of the same few
// milliseconds.
func (s *Store) Publish(ctx context.Context, signal store.Signal) error {
	return s.wake.Publish(ctx, signal)
}

// Listen calls hear for the signals of this process and for the notifications of others,
// one call at a time. It returns when ctx ends, or with an error when its connection breaks.
func (s *Store) Listen(ctx context.Context, hear func(store.Signal)) error {
	return s.wake.Listen(ctx, hear)
}

// ListenFor is Listen for a worker that serves these jobs on these queues. Workers that serve
// the same share their wake-ups: each wake-up reaches few of them.
func (s *Store) ListenFor(ctx context.Context, serves store.Serves, hear func(store.Signal)) error {
	return s.wake.ListenFor(ctx, serves, hear)
}
