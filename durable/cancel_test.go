package durable_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

// cancelOne asks for the cancel of a run.
func (s *scene) cancelOne(id durable.RunID) {
	s.t.Helper()
	changed, err := operate.New(s.store, operate.Config{}).As("ann").Cancel(s.t.Context(), "not wanted", id)
	require.NoError(s.t, err)
	require.Equal(s.t, store.CancelRequested, changed.Runs[0].Result)
}

func TestCancel_AHandlerIsNotifiedWithinOneBeat(t *testing.T) {
	for name, options := range map[string][]durable.Option{"without a timeout": nil, "with a timeout": {durable.Timeout(time.Hour)}} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				job := durable.NewJob[letter]("mail", options...)
				w := s.worker(durable.WorkerConfig{})
				var noticed atomic.Int64
				var cause atomic.Value
				durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error {
					<-ctx.Done()
					noticed.Store(time.Now().UnixNano())
					cause.Store(context.Cause(ctx))
					return ctx.Err()
				})
				stop := s.begin(w)
				id := s.enqueue(job.New(letter{}))
				s.pass(3 * time.Second)
				s.cancelOne(id)
				asked := time.Now().UnixNano()
				s.pass(11 * time.Second) // the beat comes every 10 s
				require.NotZero(t, noticed.Load(), "the handler was not cancelled")
				require.LessOrEqual(t, time.Duration(noticed.Load()-asked), 10*time.Second)
				require.ErrorIs(t, cause.Load().(error), durable.ErrCancelled)
				r := s.record(id)
				require.Equal(t, durable.Cancelled, r.State)
				require.Equal(t, "not wanted", *r.Error)
				require.Len(t, r.Attempts, 1)
				require.Equal(t, store.Cancellation, r.Attempts[0].Outcome)
				require.NoError(t, stop())
			})
		})
	}
}

func TestCancel_TheHandlersDecisionCounts(t *testing.T) {
	for name, test := range map[string]struct {
		returns func(context.Context) error
		state   durable.State
		reason  string
	}{
		"nil is a success":                       {func(context.Context) error { return nil }, durable.Succeeded, ""},
		"a permanent error is dead":              {func(context.Context) error { return durable.Permanent(errors.New("bad")) }, durable.Dead, "bad"},
		"a cancel of its own has its own reason": {func(context.Context) error { return durable.Cancel(errors.New("own")) }, durable.Cancelled, "own"},
		"another error is cancelled":             {func(context.Context) error { return errors.New("bad") }, durable.Cancelled, "not wanted"},
		"a snooze is cancelled":                  {func(context.Context) error { return durable.Snooze(time.Hour) }, durable.Cancelled, "not wanted"},
		"a panic is cancelled":                   {func(context.Context) error { panic("bad") }, durable.Cancelled, "not wanted"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				job := durable.NewJob[letter]("mail", durable.MaxAttempts(1))
				w := s.worker(durable.WorkerConfig{})
				durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
					<-ctx.Done()
					run.Log().Info("cleaned up")
					return test.returns(ctx)
				})
				stop := s.begin(w)
				id := s.enqueue(job.New(letter{}))
				s.pass(time.Second)
				s.cancelOne(id)
				s.pass(15 * time.Second)
				r := s.record(id)
				require.Equal(t, test.state, r.State)
				if test.reason != "" {
					require.Equal(t, test.reason, *r.Error)
				}
				require.Len(t, r.Attempts, 1)
				if r.Attempts[0].Outcome != store.Failure {
					require.NotNil(t, r.Attempts[0].Log)
					require.Contains(t, *r.Attempts[0].Log, "cleaned up", "what a cancelled handler logs is kept")
				}
				require.Equal(t, name == "a panic is cancelled", r.Attempts[0].Stack != nil)
				require.NoError(t, stop())
			})
		})
	}
}

func TestCancel_ARunThatWasNotBegunIsNotExecuted(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 1})
		var executed sync.Map
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
			executed.Store(run.ID, true)
			return sleeper(ctx, time.Minute)
		})
		first := s.enqueue(job.New(letter{}))
		second := s.enqueue(job.New(letter{}))
		stop := s.begin(w)
		s.pass(time.Second)
		changed, err := operate.New(s.store, operate.Config{}).As("ann").Cancel(t.Context(), "not wanted", second)
		require.NoError(t, err)
		require.Equal(t, store.RunChanged, changed.Runs[0].Result, "it waits")
		s.pass(2 * time.Minute)
		_, began := executed.Load(first)
		require.True(t, began)
		_, began = executed.Load(second)
		require.False(t, began)
		require.Equal(t, durable.Succeeded, s.record(first).State)
		require.NoError(t, stop())
	})
}

func TestCancel_AWorkerThatDiesFirstLeavesACancelledRun(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		id := s.enqueue(job.New(letter{}))
		heads, err := s.store.Heads(t.Context(), store.Serves{Queues: []string{durable.DefaultQueue}, Jobs: []string{"mail"}})
		require.NoError(t, err)
		dead := store.WorkerID{Name: "dead"}
		_, err = s.store.Claim(t.Context(), store.ClaimRequest{Claim: [16]byte{1}, Worker: dead, Duration: 30 * time.Second, Limit: 1,
			Steps: []store.Step{{Lane: heads[0].Lane, Take: 1}}})
		require.NoError(t, err)
		s.cancelOne(id)
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error {
			t.Error("it was executed")
			return nil
		})
		stop := s.begin(w)
		s.pass(time.Minute)
		r := s.record(id)
		require.Equal(t, durable.Cancelled, r.State)
		require.Equal(t, "not wanted", *r.Error)
		require.Equal(t, 1, r.CrashCount)
		require.NoError(t, stop())
	})
}

func TestCancel_AnInterruptedRunIsNotHandedBack(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{DrainTimeout: time.Second})
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error { return sleeper(ctx, time.Hour) })
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		s.cancelOne(id) // the worker is stopped before it is notified
		require.NoError(t, stop())
		require.Equal(t, durable.Cancelled, s.record(id).State)
	})
}

func TestOperator_RunsAgain(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.OnCrash(durable.CrashDead))
		w := s.worker(durable.WorkerConfig{})
		args := make(chan letter, 10)
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error { args <- run.Args; return nil })
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{To: "a"}, durable.Tags("x"), durable.Priority(2)))
		s.pass(time.Second)
		o := operate.New(s.store, operate.Config{}).As("ann")
		same, err := o.Rerun(t.Context(), id, nil)
		require.NoError(t, err)
		_, err = o.Rerun(t.Context(), id, []byte(`{"to":"b"}`), durable.After(time.Minute))
		require.NoError(t, err)
		_, err = o.Rerun(t.Context(), durable.NewRunID(), nil)
		require.ErrorIs(t, err, durable.ErrNotFound)
		s.pass(2 * time.Second)
		require.Len(t, args, 2)
		require.Equal(t, letter{To: "a"}, <-args)
		require.Equal(t, letter{To: "a"}, <-args)
		s.pass(time.Minute)
		require.Equal(t, letter{To: "b"}, <-args)
		r := s.record(same.ID)
		require.Equal(t, []string{"x"}, r.Tags)
		require.Equal(t, 2, r.Priority)
		require.NoError(t, stop())
	})
}
