package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
)

// sleeper executes until its time is over or its context ends.
func sleeper(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func TestDrain_HandlersFinish(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error { return sleeper(ctx, 8*time.Second) })
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		began := time.Now()
		require.NoError(t, stop())
		require.InDelta(t, 7, time.Since(began).Seconds(), 0.1)
		require.Equal(t, durable.Succeeded, s.record(id).State)
	})
}

func TestDrain_InterruptedRunIsHandedBackAtOnce(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{DrainTimeout: 2 * time.Second})
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error {
			err := sleeper(ctx, time.Hour)
			require.ErrorIs(t, context.Cause(ctx), durable.ErrDraining)
			return err
		})
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		began := time.Now()
		require.NoError(t, stop())
		require.InDelta(t, 2, time.Since(began).Seconds(), 0.1)
		r := s.record(id)
		require.Equal(t, durable.Pending, r.State)
		require.Zero(t, r.Attempt, "the attempt is refunded")
		require.Zero(t, r.CrashCount)
		require.Empty(t, r.Attempts)
	})
}

func TestDrain_HurryCancelsAtOnce(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{DrainTimeout: time.Hour})
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error { return sleeper(ctx, time.Hour) })
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		began := time.Now()
		w.Hurry()
		require.NoError(t, stop())
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, durable.Pending, s.record(id).State)
	})
}

func TestDrain_StuckHandlerKeepsItsLease(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{DrainTimeout: time.Second, CancelGrace: 3 * time.Second})
		release := make(chan struct{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { <-release; return nil })
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		began := time.Now()
		err := stop()
		var stuck *durable.StuckError
		require.ErrorAs(t, err, &stuck)
		require.Equal(t, []durable.RunID{id}, stuck.Runs)
		require.InDelta(t, 4, time.Since(began).Seconds(), 0.1)
		require.Equal(t, durable.Running, s.record(id).State, "it is not handed back: its handler still executes")
		close(release)
		s.pass(time.Second)
		require.Equal(t, durable.Running, s.record(id).State, "an abandoned handler settles nothing")
	})
}

func TestDrain_EndsAlthoughAHandlerThatTimedOutNeverReturns(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.Timeout(time.Second), durable.MaxAttempts(1))
		w := s.worker(durable.WorkerConfig{DrainTimeout: time.Second, CancelGrace: 3 * time.Second})
		release := make(chan struct{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { <-release; return nil })
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(10 * time.Second)
		require.Equal(t, durable.Dead, s.record(id).State, "given up, and settled")
		began := time.Now()
		err := stop()
		var stuck *durable.StuckError
		require.ErrorAs(t, err, &stuck)
		require.Equal(t, []durable.RunID{id}, stuck.Runs)
		require.InDelta(t, 4, time.Since(began).Seconds(), 0.1)
		close(release)
		s.pass(time.Second)
	})
}

func TestDrain_EndsWithoutTheStore(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{DrainTimeout: time.Second, CancelGrace: 3 * time.Second})
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error { return sleeper(ctx, time.Hour) })
		stop := s.begin(w)
		s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		s.store.down()
		began := time.Now()
		require.NoError(t, stop())
		require.Less(t, time.Since(began), 10*time.Second)
		require.Contains(t, s.log.String(), "left unsettled")
	})
}
