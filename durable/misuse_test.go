package durable_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

func TestMisuse_WhatIsRegisteredLateIsRefused(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		mail, late := durable.NewJob[letter]("mail"), durable.NewJob[letter]("late", durable.Alias("later"))
		nothing := func(context.Context, *durable.Run[letter]) error { return nil }
		w := s.worker(durable.WorkerConfig{PollInterval: time.Second})
		durable.Register(w, mail, nothing)
		stop := s.begin(w)
		done := make(chan struct{})
		go func() { // beside a worker that claims: -race looks for what is shared
			defer close(done)
			for range 100 {
				durable.Register(w, late, nothing)
				durable.AddSchedule(w, "late", late, letter{}, durable.Every(time.Minute))
			}
		}()
		for range 100 {
			s.enqueue(mail.New(letter{}))
		}
		<-done
		id := s.enqueue(late.New(letter{}))
		s.pass(2 * store.DeclareEvery)
		require.Equal(t, durable.Pending, s.record(id).State, "no one has the handler")
		jobs, err := s.store.Jobs(t.Context())
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		schedules, err := s.store.ListSchedules(t.Context())
		require.NoError(t, err)
		require.Empty(t, schedules)
		require.ErrorContains(t, w.Faults(), `job "late": registered after Worker.Run had begun`)
		require.ErrorContains(t, w.Faults(), `schedule "late": added after Worker.Run had begun`)
		require.Contains(t, s.log.String(), "registered after Worker.Run had begun")
		require.NoError(t, stop())
	})
}

func TestMisuse_AWorkerRunsOnce(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{})
		require.ErrorContains(t, w.Run(t.Context()), "no job is registered")
		durable.Register(w, durable.NewJob[letter]("mail"), func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		require.ErrorContains(t, w.Run(t.Context()), "was called twice")
		require.NoError(t, stop())
		require.ErrorContains(t, w.Run(t.Context()), "was called twice")
	})
}

func TestMisuse_AWorkerWithoutAStoreOrWithAJobOfNoMakingDoesNotStart(t *testing.T) {
	t.Parallel()
	w := durable.NewWorker(nil, durable.WorkerConfig{})
	durable.Register(w, durable.NewJob[letter]("mail"), func(context.Context, *durable.Run[letter]) error { return nil })
	require.ErrorContains(t, w.Run(t.Context()), "the store is nil")

	var made durable.Job[letter]
	w = durable.NewWorker(memory.New(memory.Config{}), durable.WorkerConfig{})
	durable.Register(w, made, func(context.Context, *durable.Run[letter]) error { return nil })
	durable.AddSchedule(w, "s", made, letter{}, durable.Every(time.Hour))
	err := w.Run(t.Context())
	require.ErrorIs(t, err, durable.ErrInvalid)
	require.ErrorContains(t, err, "the zero value: create it with durable.NewJob")
	_, err = made.Enqueue(t.Context(), memory.New(memory.Config{}), letter{})
	require.ErrorContains(t, err, "the zero value: create it with durable.NewJob")
}

func TestMisuse_ARunIsOfNoUseWhenItsHandlerHasReturned(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		mail, next := durable.NewJob[letter]("mail"), durable.NewJob[letter]("next")
		var kept *durable.Run[letter]
		w := s.worker(durable.WorkerConfig{PollInterval: time.Second})
		durable.Register(w, mail, func(_ context.Context, run *durable.Run[letter]) error {
			kept = run
			return run.SetResult("in time")
		})
		stop := s.begin(w)
		id := s.enqueue(mail.New(letter{}))
		s.pass(2 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(id).State)

		ctx := t.Context()
		require.False(t, kept.Valid(ctx))
		require.ErrorIs(t, kept.SetResult("late"), lease.ErrLost)
		require.ErrorIs(t, kept.Progress(ctx, 0.5, "late"), lease.ErrLost)
		require.ErrorIs(t, kept.Checkpoint(ctx, "late"), lease.ErrLost)
		_, err := next.Enqueue(ctx, kept, letter{})
		require.ErrorIs(t, err, lease.ErrLost)
		tx := s.store.Store.(*memory.Store).Begin()
		require.ErrorIs(t, kept.Guard(ctx, tx), lease.ErrLost)
		require.ErrorIs(t, kept.CompleteIn(ctx, tx), lease.ErrLost)
		tx.Rollback()
		kept.Log().Info("late")
		require.NoError(t, stop())
		record := s.record(id)
		require.JSONEq(t, `"in time"`, string(record.Result))
		require.Nil(t, record.Progress)
		require.Empty(t, record.Checkpoint)
	})
}

func TestMisuse_AGoroutineThatOutlivesItsHandlerChangesNothing(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		mail := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{PollInterval: time.Second})
		leaked := make(chan struct{})
		durable.Register(w, mail, func(ctx context.Context, run *durable.Run[letter]) error {
			go func() {
				defer close(leaked)
				for i := range 1000 { // -race looks for what is shared with the settle
					_ = run.SetResult(i)
					_ = run.Progress(context.WithoutCancel(ctx), 0.5, "")
					run.Log().Info("on")
					_ = run.Valid(ctx)
				}
			}()
			return nil
		})
		stop := s.begin(w)
		id := s.enqueue(mail.New(letter{}))
		<-leaked
		s.pass(2 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(id).State)
		require.NoError(t, stop())
	})
}

// A pause spread by what is no number would be no pause at all.
func TestMisuse_AJitterThatIsNoNumberIsRefused(t *testing.T) {
	w := durable.NewWorker(memory.New(memory.Config{}), durable.WorkerConfig{PollJitter: math.NaN()})
	require.ErrorContains(t, w.Faults(), "poll jitter ratio NaN: want at most 1")
}

func TestMisuse_ABackoffOfWhatIsNoNumberWaitsAsLong(t *testing.T) {
	for _, policy := range []durable.Backoff{
		{Base: time.Minute, Factor: math.NaN(), Jitter: math.NaN()}, {Base: time.Minute, Jitter: math.NaN()}, {Base: time.Minute, Factor: math.NaN()},
	} {
		require.Equal(t, time.Minute, policy.Delay(3, nil), "%+v", policy)
	}
}

func TestMisuse_JobsOfQueuesThatAreNotServedAreNamed(t *testing.T) {
	play(t, func(_ *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{Queues: []durable.Queue{{Name: "images"}}})
		nothing := func(context.Context, *durable.Run[string]) error { return nil }
		durable.Register(w, durable.NewJob[string]("thumbnail", durable.OnQueue("images")), nothing)
		durable.Register(w, durable.NewJob[string]("tidy"), nothing)
		stop := s.begin(w)
		require.Contains(t, s.log.String(), `event=worker.other_queues jobs="[tidy on default]"`)
		require.NoError(t, stop())
	})
}

// Errors name the call that failed, once.
func TestMisuse_ErrorsNameTheCall(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		mail := durable.NewJob[string]("mail")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		begins := func(what string, err error) {
			t.Helper()
			require.Error(t, err, what)
			require.Equal(t, 1, strings.Count(err.Error(), what), err)
			require.True(t, strings.HasPrefix(err.Error(), what), err)
		}
		_, err := mail.Enqueue(t.Context(), s.client, "", durable.Priority(99))
		begins("enqueue: ", err)
		_, err = mail.Enqueue(over, s.client, "")
		begins("enqueue: ", err)
		_, err = durable.Result[string](t.Context(), s.client, durable.NewRunID())
		begins("wait: ", err)
		_, err = s.client.Wait(over, durable.NewRunID())
		begins("wait: ", err)
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, mail, func(ctx context.Context, run *durable.Run[string]) error {
			begins("checkpoint: ", run.Checkpoint(ctx, func() {}))
			begins("checkpoint: ", run.Checkpoint(over, 1))
			require.NoError(t, run.Checkpoint(ctx, "a text"))
			var number int
			_, err := run.LastCheckpoint(ctx, &number)
			begins("last checkpoint: ", err)
			begins("progress: ", run.Progress(ctx, 3, ""))
			begins("progress: ", run.Progress(over, 0.5, ""))
			_, err = run.Enqueue(ctx, mail.New("", durable.Priority(99)))
			begins("enqueue under run ", err)
			return nil
		})
		stop := s.begin(w)
		id := s.enqueue(mail.New(""))
		s.pass(time.Second)
		require.Equal(t, durable.Succeeded, s.record(id).State)
		require.NoError(t, stop())
	})
}
