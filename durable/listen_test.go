package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// lateStore is a store whose listener joins late.
type lateStore struct {
	*faultyStore
	join <-chan struct{}
}

func (s lateStore) ListenFor(ctx context.Context, serves store.Serves, hear func(store.Signal)) error {
	select {
	case <-s.join:
	case <-ctx.Done():
		return nil
	}
	return s.faultyStore.ListenFor(ctx, serves, hear)
}

// A run is put back and is due again before the listener of its worker is up, and no signal tells the
// worker. It looks when it listens, and not at its next poll.
func TestListen_FindsWhatWasDueBeforeTheListenerJoined(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		join, began, executions := make(chan struct{}), time.Now(), 0
		w := durable.NewWorker(lateStore{s.store, join}, durable.WorkerConfig{Elapsed: func() time.Duration { return time.Since(began) },
			Process: new(durable.Process), PollInterval: time.Hour, PollJitter: -1})
		job := durable.NewJob[letter]("mail")
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
			executions++
			_, err := durable.Receive[string](ctx, run, "approved", 0)
			return err
		})
		id := s.enqueue(job.New(letter{}))
		stop := s.begin(w)
		s.pass(time.Second)
		require.Equal(t, 1, executions)
		_, err := job.Send(t.Context(), s.client, id, "approved", "eva")
		require.NoError(t, err)
		s.pass(time.Second)
		require.Equal(t, 1, executions, "it hears nothing yet")
		close(join)
		s.pass(time.Second)
		require.Equal(t, 2, executions)
		require.Equal(t, durable.Succeeded, s.record(id).State)
		require.NoError(t, stop())
	})
}
