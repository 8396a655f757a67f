package durable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
)

// looksStore counts the looks at the schedules.
type looksStore struct {
	durable.Store
	looks atomic.Int32
}

func (s *looksStore) Materialize(
	ctx context.Context, limit int, decide func(time.Time, durable.Schedule) durable.Decision,
) (durable.Materialized, error) {
	s.looks.Add(1)
	return s.Store.Materialize(ctx, limit, decide)
}

func TestSchedule_IdleWorkerLooksSeldomAndHearsOfChanges(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		counted := &looksStore{Store: s.store.Store}
		s.store.Store = counted
		w := s.worker(durable.WorkerConfig{})
		var fired, most atomic.Int32
		job := tick(w, 0, &fired, &most)
		stop := s.begin(w)
		s.pass(5 * time.Minute)
		require.InDelta(t, 15, counted.looks.Load(), 5, "looks in 5 minutes, at four poll intervals of 5 s")

		for before := counted.looks.Load(); counted.looks.Load() == before; {
			s.pass(100 * time.Millisecond)
		}
		s.pass(7 * time.Second) // a poll interval and its jitter
		before := counted.looks.Load()
		one, err := durable.JobInfo{Name: job.Name(), Queue: durable.DefaultQueue, MaxAttempts: 3}.
			NewSchedule("new", []byte("{}"), durable.Every(2*time.Second))
		require.NoError(t, err)
		require.NoError(t, counted.SaveSchedule(t.Context(), one, "ann"))
		s.pass(100 * time.Millisecond)
		require.Equal(t, before+1, counted.looks.Load(), "looks after a schedule was saved")
		s.pass(5 * time.Second)
		require.GreaterOrEqual(t, fired.Load(), int32(1))
		require.NoError(t, stop())
	})
}

func TestSchedule_WorkerThatHearsNothingLooksAtEveryPoll(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		counted := &looksStore{Store: s.store.Store}
		s.store.Store = counted
		w := s.worker(durable.WorkerConfig{NoListen: true})
		var fired, most atomic.Int32
		tick(w, 0, &fired, &most)
		stop := s.begin(w)
		s.pass(5 * time.Minute)
		require.InDelta(t, 60, counted.looks.Load(), 8)
		require.NoError(t, stop())
	})
}
