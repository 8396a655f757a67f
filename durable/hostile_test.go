package durable_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// nilError is an error whose methods panic on the typed nil that people return
// by mistake.
type nilError struct{ inner error }

func (e *nilError) Error() string { return e.inner.Error() }
func (e *nilError) Unwrap() error { return e.inner }

func TestHostile_TypedNilErrorFailsTheAttempt(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.MaxAttempts(1))
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error {
			var e *nilError
			return e
		})
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		require.Equal(t, durable.Dead, s.record(id).State)
		require.NoError(t, stop())
	})
}

// exitError is an error that ends the goroutine which asks for its text, as a
// check of package testing within it would.
type exitError struct{}

func (exitError) Error() string { runtime.Goexit(); return "" }

func TestHostile_GoexitOutsideTheHandlerFailsTheAttempt(t *testing.T) {
	exits := durable.RetryFunc(func(int, error) time.Duration { runtime.Goexit(); return 0 })
	for name, job := range map[string]durable.Job[letter]{
		"in the text of the error": durable.NewJob[letter]("mail"),
		"in the retry policy":      durable.NewJob[letter]("mail", durable.Retry(exits)),
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 1})
				durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
					if run.Args.To == "ada" {
						return nil
					}
					return exitError{}
				})
				stop := s.begin(w)
				bad := s.enqueue(job.New(letter{}))
				s.pass(time.Second)
				good := s.enqueue(job.New(letter{To: "ada"}))
				s.pass(10 * time.Second)
				require.Equal(t, durable.Succeeded, s.record(good).State, "the slot is free")
				require.Equal(t, durable.Pending, s.record(bad).State)
				require.Equal(t, "handler exited: runtime.Goexit", *s.record(bad).Error)
				s.pass(time.Hour)
				require.Equal(t, durable.Dead, s.record(bad).State)
				require.NoError(t, stop())
			})
		})
	}
}

func TestHostile_HungHandlerDoesNotBlockItsCappedQueue(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.Timeout(time.Second), durable.MaxAttempts(1))
		w := s.worker(durable.WorkerConfig{Queues: []durable.Queue{{Name: "default", Max: 1}}})
		release := make(chan struct{})
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
			if run.Args.To == "hang" {
				<-release
			}
			return nil
		})
		stop := s.begin(w)
		s.enqueue(job.New(letter{To: "hang"}))
		next := s.enqueue(job.New(letter{}))
		s.pass(10 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(next).State)
		close(release)
		s.pass(time.Second)
		require.NoError(t, stop())
	})
}

func TestHostile_BatchThatCannotBeWrittenIsSplit(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		s.store.settleMost = 3
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		for range 100 {
			s.enqueue(job.New(letter{}))
		}
		stop := s.begin(w)
		s.pass(time.Minute)
		counts, err := s.store.Counts(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(100), counts[durable.Succeeded].N)
		require.NoError(t, stop())
	})
}

func TestHostile_DeferredSettleRetainsItsLeaseAndIsRetried(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		s.store.defers = 300 // more than a minute of them
		w := s.worker(durable.WorkerConfig{})
		var calls atomic.Int32
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { calls.Add(1); return nil })
		id := s.enqueue(job.New(letter{}))
		stop := s.begin(w)
		s.pass(time.Minute)
		require.Equal(t, durable.Running, s.record(id).State)
		s.pass(time.Minute)
		require.Equal(t, durable.Succeeded, s.record(id).State)
		require.Zero(t, s.record(id).CrashCount)
		require.Equal(t, int32(1), calls.Load())
		require.NoError(t, stop())
	})
}

func TestHostile_LongLostClaimAnswerIsNoCrash(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.OnCrash(durable.CrashDead))
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		id := s.enqueue(job.New(letter{}))
		s.store.cutAfter("Claim", -1)
		stop := s.begin(w)
		s.pass(18 * time.Second)
		require.Equal(t, durable.Running, s.record(id).State, "granted, and the answer lost")
		s.store.cutAfter("Claim", 0)
		s.pass(20 * time.Second)
		r := s.record(id)
		require.Equal(t, durable.Succeeded, r.State)
		require.Zero(t, r.CrashCount)
		require.NoError(t, stop())
	})
}

func TestHostile_WakeUpsDoNotStarveALowPriority(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		low, high := durable.NewJob[letter]("low", durable.Priority(-4)), durable.NewJob[letter]("high", durable.Priority(4))
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 4})
		var lows, highs atomic.Int32
		work := func(count *atomic.Int32) func(context.Context, *durable.Run[letter]) error {
			return func(ctx context.Context, _ *durable.Run[letter]) error {
				count.Add(1)
				return sleeper(ctx, 10*time.Millisecond)
			}
		}
		durable.Register(w, low, work(&lows))
		durable.Register(w, high, work(&highs))
		for range 2000 {
			s.enqueue(low.New(letter{}))
		}
		s.pass(time.Millisecond)
		for range 2000 {
			s.enqueue(high.New(letter{}))
		}
		stop := s.begin(w)
		for range 4000 {
			s.enqueue(high.New(letter{}))
			s.pass(time.Millisecond)
		}
		require.InDelta(t, 16, float64(lows.Load()+highs.Load())/float64(lows.Load()), 3, "one of sixteen is the oldest of any priority")
		require.NoError(t, stop())
	})
}

func TestHostile_TimeoutThatOverflowsIsRefused(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		_, err := job.Enqueue(t.Context(), s.client, letter{}, durable.Timeout(math.MaxInt64))
		require.True(t, errors.Is(err, durable.ErrInvalid))
	})
}

func TestHostile_TimesThatOverflowAreRefused(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{PollInterval: math.MaxInt64, SweepInterval: math.MaxInt64, DrainTimeout: math.MaxInt64, CancelGrace: math.MaxInt64})
		durable.Register(w, durable.NewJob[letter]("mail"), func(context.Context, *durable.Run[letter]) error { return nil })
		err := w.Run(t.Context())
		require.ErrorIs(t, err, durable.ErrInvalid)
		for _, part := range []string{"poll interval", "sweep interval", "drain timeout", "cancel grace"} {
			require.ErrorContains(t, err, part)
		}
	})
}

func TestHostile_RetryPolicyThatExitsDoesNotKeepAStuckHandlerInItsSlot(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		exits := durable.RetryFunc(func(int, error) time.Duration { runtime.Goexit(); return 0 })
		job := durable.NewJob[letter]("mail", durable.Timeout(time.Second), durable.Retry(exits))
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 1})
		release := make(chan struct{})
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
			if run.Args.To == "hang" {
				<-release
			}
			return nil
		})
		stop := s.begin(w)
		hung, next := s.enqueue(job.New(letter{To: "hang"})), s.enqueue(job.New(letter{}))
		s.pass(20 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(next).State)
		require.Equal(t, durable.Pending, s.record(hung).State)
		require.Contains(t, *s.record(hung).Error, "ignored its context")
		close(release)
		s.pass(time.Second)
		require.NoError(t, stop())
	})
}

func TestLog_LevelOfADeadRunTellsWhoDecided(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.MaxAttempts(1))
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
			if run.Args.To == "nobody" {
				return durable.Permanent(errBoom)
			}
			return errBoom
		})
		stop := s.begin(w)
		decided, failed := s.enqueue(job.New(letter{To: "nobody"})), s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		require.Contains(t, s.log.String(), `level=WARN msg="run is dead: its handler has ended it" run=`+decided.String())
		require.Contains(t, s.log.String(), `level=ERROR msg="run is dead" run=`+failed.String())
		require.NoError(t, stop())
	})
}

// errLong is as long as those of a driver.
var errLong = errors.New("failed to connect to " + strings.Repeat("somewhere ", 20) + "the end")

// awayStore answers no Heads.
type awayStore struct{ durable.Store }

func (awayStore) Heads(context.Context, store.Serves) ([]store.Head, error) {
	return nil, errLong
}

func TestLog_ErrorThatStaysTheSameIsLongOnceAMinute(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.store.Store = awayStore{s.store.Store}
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{PollInterval: time.Second})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		s.pass(50 * time.Second)
		require.Equal(t, 1, strings.Count(s.log.String(), "the end"))
		require.Greater(t, strings.Count(s.log.String(), "(as before)"), 10)
		s.pass(50 * time.Second)
		require.Equal(t, 2, strings.Count(s.log.String(), "the end"))
		require.NoError(t, stop())
	})
}
