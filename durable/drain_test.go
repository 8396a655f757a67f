package durable_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
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

func TestDrain_InterruptedRunIsHandedBackImmediately(t *testing.T) {
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

func TestDrain_StopNowCancelsImmediately(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{DrainTimeout: time.Hour})
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error { return sleeper(ctx, time.Hour) })
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		began := time.Now()
		w.StopNow()
		require.NoError(t, stop())
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, durable.Pending, s.record(id).State)
	})
}

func TestDrain_StuckHandlerRetainsItsLease(t *testing.T) {
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
		var unsettled *durable.UnsettledError
		require.ErrorAs(t, stop(), &unsettled)
		require.Len(t, unsettled.Runs, 1)
		require.Equal(t, "connection cut", unsettled.Reason)
		require.Less(t, time.Since(began), 10*time.Second)
		require.Contains(t, s.log.String(), "left unsettled")
	})
}

func TestDrain_EndsWhenMoreOutcomesWaitThanTheSettlerKeeps(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 2, DrainTimeout: time.Second, CancelGrace: time.Second})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		s.store.cutBefore("Settle", -1)
		stop := s.begin(w)
		s.enqueueMany(4000, func() durable.NewRun { return job.New(letter{}) })
		s.pass(time.Minute)
		began := time.Now()
		_ = stop() // whom it blames does not matter here
		require.Less(t, time.Since(began), 3*time.Second)
		require.Contains(t, s.log.String(), "left unsettled")
	})
}

func TestDrain_EndsWhenLargeOutcomesWaitForAStoreThatIsAway(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 300, DrainTimeout: time.Second, CancelGrace: time.Second})
		large := strings.Repeat("x", 255<<10)
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
			return errors.Join(sleeper(ctx, 5*time.Second), run.SetResult(large))
		})
		stop := s.begin(w)
		s.enqueueMany(300, func() durable.NewRun { return job.New(letter{}) })
		s.pass(2 * time.Second)
		require.Equal(t, 300, w.Status().Executing)
		s.store.down()
		s.pass(10 * time.Second)
		require.NotZero(t, w.Status().Executing, "some wait for room")
		began := time.Now()
		var unsettled *durable.UnsettledError
		require.ErrorAs(t, stop(), &unsettled)
		require.Less(t, len(unsettled.Error()), 1000, "it names some of the 300 runs")
		require.Less(t, time.Since(began), 3*time.Second)
	})
}

// stubbornStore takes its time to give up a report, whatever the context says.
type stubbornStore struct {
	durable.Store
	takes time.Duration
}

func (s *stubbornStore) Report(context.Context, store.Holder, store.Report) error {
	<-time.After(s.takes)
	return errCut
}

func TestDrain_WaitsForWhatHasReturnedBesideAStuckHandler(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.store.Store = &stubbornStore{Store: s.store.Store, takes: 2500 * time.Millisecond}
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{DrainTimeout: time.Second, CancelGrace: time.Second})
		release := make(chan struct{})
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
			if run.Args.To == "hang" {
				<-release
				return nil
			}
			go func() { _ = run.Checkpoint(ctx, 1) }()
			return sleeper(ctx, 500*time.Millisecond)
		})
		stop := s.begin(w)
		hung, done := s.enqueue(job.New(letter{To: "hang"})), s.enqueue(job.New(letter{}))
		s.pass(100 * time.Millisecond) // its report goes on until after the grace
		var stuck *durable.StuckError
		require.ErrorAs(t, stop(), &stuck)
		require.Equal(t, []durable.RunID{hung}, stuck.Runs)
		require.Equal(t, durable.Succeeded, s.record(done).State)
		close(release)
		s.pass(time.Second)
		require.Contains(t, s.log.String(), "a handler has returned after its worker had stopped")
	})
}

func TestDrain_NamesARunOnceOfWhichTwoAttemptsAreStuck(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.Timeout(time.Second), durable.Retry(durable.Fixed(0)), durable.MaxAttempts(2))
		w := s.worker(durable.WorkerConfig{DrainTimeout: time.Second, CancelGrace: time.Second})
		release := make(chan struct{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { <-release; return nil })
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Minute)
		require.Equal(t, 2, w.Status().Stuck)
		var stuck *durable.StuckError
		require.ErrorAs(t, stop(), &stuck)
		require.Equal(t, []durable.RunID{id}, stuck.Runs)
		close(release)
		s.pass(time.Second)
	})
}

func TestDrain_LogsNoFailureOfItsOwnMaking(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		slow := &slowStore{Store: s.store.Store}
		s.store.Store = slow
		w := s.worker(durable.WorkerConfig{PollInterval: time.Second})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		s.pass(10 * time.Second)
		cancel(errors.New("interrupted: terminated"))
		require.NoError(t, <-ended)
		require.Positive(t, slow.interrupted.Load(), "a call was under way")
		require.NotContains(t, s.log.String(), "level=WARN msg=\"reclaim failed")
	})
}

// slowStore takes an hour for a Reclaim.
type slowStore struct {
	durable.Store
	interrupted atomic.Int64
}

func (s *slowStore) Reclaim(ctx context.Context, _ store.ReclaimRequest) (store.ReclaimResult, error) {
	select {
	case <-time.After(time.Hour):
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			s.interrupted.Add(1)
		}
	}
	return store.ReclaimResult{}, ctx.Err()
}
