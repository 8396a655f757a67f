package durable_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func TestWorker_SuccessIsStoredWithItsResult(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.Priority(2), durable.Tags("a", "b"))
		w := s.worker(durable.WorkerConfig{Name: "w1"})
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
			require.True(t, run.Valid(ctx))
			require.Equal(t, run.ID.String(), run.IdempotencyKey())
			return run.SetResult(map[string]string{"sent": run.Args.To})
		})
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{To: "eve"}))
		s.pass(10 * time.Millisecond)
		r := s.record(id)
		require.Equal(t, durable.Succeeded, r.State)
		require.JSONEq(t, `{"sent":"eve"}`, string(r.Result))
		require.Equal(t, "w1", *r.Worker)
		require.Equal(t, []string{"a", "b"}, r.Tags)
		require.Len(t, r.Attempts, 1)
		require.Nil(t, r.Error)
		require.NoError(t, stop())
	})
}

func TestWorker_OutcomesOfHandlers(t *testing.T) {
	hostile := "bad\x00" + string([]byte{0xff, 0xfe}) + strings.Repeat("é", 5<<20)
	cases := []struct {
		name    string
		handler func(attempt int) error
		state   durable.State
		attempt int
		failed  int // attempts recorded
		text    string
	}{
		{"an error is retried and then succeeds", func(n int) error {
			if n < 3 {
				return errBoom
			}
			return nil
		}, durable.Succeeded, 3, 2, ""},
		{"an error on each attempt ends dead", func(int) error { return errBoom }, durable.Dead, 3, 3, "boom"},
		{"permanent ends dead immediately", func(int) error { return durable.Permanent(errBoom) }, durable.Dead, 1, 1, "boom"},
		{"cancel ends cancelled", func(int) error { return durable.Cancel(errors.New("not wanted")) }, durable.Cancelled, 1, 1, "not wanted"},
		{"a panic is a failed attempt", func(int) error { panic("oh") }, durable.Dead, 3, 3, "panic: oh"},
		{"a nil panic is a failed attempt", func(int) error { panic(nil) }, durable.Dead, 3, 3, "panic: "}, //nolint:govet // on purpose
		{"goexit is a failed attempt", func(int) error { runtime.Goexit(); return nil }, durable.Dead, 3, 3, "runtime.Goexit"},
		{"an error that panics when asked for its text", func(int) error { var e *panickyError; return e }, durable.Dead, 3, 3, "panickyError"},
		{"a huge and invalid text is cut and made valid", func(int) error { return errors.New(hostile) }, durable.Dead, 3, 3, "bad\uFFFD"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				job := durable.NewJob[letter]("mail", durable.Retry(durable.Fixed(time.Second)))
				w := s.worker(durable.WorkerConfig{})
				durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error { return c.handler(run.Attempt) })
				stop := s.begin(w)
				id := s.enqueue(job.New(letter{}))
				s.pass(20 * time.Second)
				r := s.record(id)
				require.Equal(t, c.state, r.State)
				require.Equal(t, c.attempt, r.Attempt)
				recorded := 0
				for _, a := range r.Attempts {
					if a.Outcome != store.Success {
						recorded++
					}
				}
				require.Equal(t, c.failed, recorded)
				if c.text != "" {
					require.Contains(t, *r.Error, c.text)
					require.LessOrEqual(t, len(*r.Error), store.MaxErrorSize)
				}
				require.NoError(t, stop())
			})
		})
	}
}

type panickyError struct{ text string }

func (e *panickyError) Error() string { return e.text }

func TestWorker_SnoozeSpendsNoAttempt(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.MaxAttempts(1))
		w := s.worker(durable.WorkerConfig{PollInterval: time.Second})
		var calls atomic.Int32
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
			require.Equal(t, 1, run.Attempt)
			if calls.Add(1) < 5 {
				return durable.Snooze(3 * time.Second)
			}
			return nil
		})
		stop := s.begin(w)
		began := time.Now()
		id := s.enqueue(job.New(letter{}))
		s.pass(20 * time.Second)
		r := s.record(id)
		require.Equal(t, durable.Succeeded, r.State)
		require.GreaterOrEqual(t, r.FinishedAt.Sub(began), 12*time.Second)
		require.Equal(t, int32(5), calls.Load())
		require.NoError(t, stop())
	})
}

func TestWorker_RetryAfterOverridesThePolicy(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.Retry(durable.RetryFunc(func(int, error) time.Duration { panic("not asked") })))
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
			if run.Attempt == 1 {
				return durable.RetryAfter(90*time.Second, errBoom)
			}
			return nil
		})
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(89 * time.Second)
		require.Equal(t, durable.Pending, s.record(id).State)
		s.pass(8 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(id).State)
		require.NoError(t, stop())
	})
}

func TestWorker_BadArgsFailTheAttemptAndOthersFlow(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.Retry(durable.Fixed(time.Second)), durable.RetryArgsFor(5*time.Second))
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		bad := job.New(letter{})
		bad.Args = []byte(`{"to": 5}`)
		poison, good := s.enqueue(bad), s.enqueue(job.New(letter{}))
		s.pass(10 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(good).State)
		r := s.record(poison)
		require.Equal(t, durable.Dead, r.State)
		require.Contains(t, *r.Error, "decode args")
		require.NoError(t, stop())
	})
}

func TestWorker_TimeoutEndsAnAttempt(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.Timeout(2*time.Second), durable.MaxAttempts(1))
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), durable.ErrTimeout)
			return context.Cause(ctx)
		})
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(3 * time.Second)
		r := s.record(id)
		require.Equal(t, durable.Dead, r.State)
		require.Contains(t, *r.Error, "timed out")
		require.NoError(t, stop())
	})
}

func TestWorker_HandlerThatIgnoresItsTimeoutIsReplaced(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail", durable.Timeout(2*time.Second), durable.MaxAttempts(1))
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
		s.pass(6 * time.Second)
		require.Equal(t, durable.Pending, s.record(next).State, "its slot is taken")
		s.pass(2 * time.Second)
		require.Equal(t, durable.Succeeded, s.record(next).State)
		r := s.record(hung)
		require.Equal(t, durable.Dead, r.State)
		require.Contains(t, *r.Error, "ignored its context")
		require.Contains(t, *r.Attempts[0].Stack, "(*execution).perform")
		require.Equal(t, 1, w.Status().Stuck)
		close(release)
		s.pass(time.Second)
		require.Equal(t, durable.Dead, s.record(hung).State, "what it returns late is dropped")
		require.Equal(t, 0, w.Status().Stuck)
		require.NoError(t, stop())
	})
}

func TestWorker_HandlersAreCancelledBeforeTheLeaseExpires(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{})
		var noticed atomic.Int64
		var began time.Time
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
			if run.CrashCount > 0 || noticed.Load() > 0 {
				return nil
			}
			<-ctx.Done()
			noticed.Store(int64(time.Since(began)))
			require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
			require.False(t, run.Valid(ctx))
			return ctx.Err()
		})
		stop := s.begin(w)
		began = time.Now()
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		s.store.down()
		s.pass(40 * time.Second)
		require.Less(t, time.Duration(noticed.Load()), 30*time.Second)
		require.Greater(t, time.Duration(noticed.Load()), 25*time.Second)
		s.store.up()
		s.pass(20 * time.Second)
		r := s.record(id)
		require.Equal(t, durable.Succeeded, r.State)
		require.Zero(t, r.CrashCount, "a worker that lived through an outage hands back, it did not crash")
		require.Equal(t, 1, r.Attempt)
		require.NoError(t, stop())
	})
}

func TestWorker_LateWriteIsRefused(t *testing.T) {
	// The zombie is an earlier execution in the very worker that takes the run
	// over: same process, same name, another claim.
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{Name: "same"})
		release := make(chan struct{})
		var calls atomic.Int32
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
			if calls.Add(1) == 1 {
				<-release
				return errBoom
			}
			return run.SetResult("second")
		})
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		s.store.cutBefore("Renew", -1)
		s.pass(40 * time.Second)
		s.store.cutBefore("Renew", 0)
		s.pass(5 * time.Second) // it claims again
		require.Equal(t, durable.Succeeded, s.record(id).State)
		require.Equal(t, 1, s.record(id).CrashCount)
		require.Contains(t, s.log.String(), "lease was lost")
		close(release)
		s.pass(time.Second)
		r := s.record(id)
		require.Equal(t, durable.Succeeded, r.State)
		require.JSONEq(t, `"second"`, string(r.Result))
		require.Contains(t, s.log.String(), "stale settle rejected")
		require.NoError(t, stop())
	})
}

func TestWorker_LostAnswersAreResolved(t *testing.T) {
	for _, method := range []string{"Enqueue", "Claim", "Settle", "Renew", "Reclaim", "Heads", "Declare"} {
		for _, when := range []string{"before", "after"} {
			t.Run(method+" cut "+when, func(t *testing.T) {
				play(t, func(t *testing.T, s *scene) {
					job := durable.NewJob[letter]("mail")
					w := s.worker(durable.WorkerConfig{})
					var calls atomic.Int32
					durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error {
						calls.Add(1)
						select {
						case <-ctx.Done():
							return ctx.Err()
						case <-time.After(15 * time.Second):
							return nil
						}
					})
					if when == "before" {
						s.store.cutBefore(method, 2)
					} else {
						s.store.cutAfter(method, 2)
					}
					stop := s.begin(w)
					id := s.enqueue(job.New(letter{}))
					s.pass(30 * time.Second)
					r := s.record(id)
					require.Equal(t, durable.Succeeded, r.State)
					require.Equal(t, int32(1), calls.Load(), "executed once")
					require.Zero(t, r.CrashCount)
					require.NoError(t, stop())
				})
			})
		}
	}
}

func TestWorker_NeverMoreThanItsSlots(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		a, b := durable.NewJob[letter]("a"), durable.NewJob[letter]("b", durable.OnQueue("mail"))
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 7, ClaimBatchSize: 3,
			Queues: []durable.Queue{{Name: "default"}, {Name: "mail", Max: 2}}})
		var now, most, mail, mostMail atomic.Int32
		work := func(count *atomic.Int32, peak *atomic.Int32) func(context.Context, *durable.Run[letter]) error {
			return func(context.Context, *durable.Run[letter]) error {
				for _, c := range []struct{ count, peak *atomic.Int32 }{{&now, &most}, {count, peak}} {
					n := c.count.Add(1)
					for p := c.peak.Load(); n > p && !c.peak.CompareAndSwap(p, n); p = c.peak.Load() {
					}
					defer c.count.Add(-1)
				}
				<-time.After(time.Second)
				return nil
			}
		}
		var unused, unusedPeak atomic.Int32
		durable.Register(w, a, work(&unused, &unusedPeak))
		durable.Register(w, b, work(&mail, &mostMail))
		stop := s.begin(w)
		for range 40 {
			s.enqueue(a.New(letter{}))
			s.enqueue(b.New(letter{}))
		}
		s.pass(time.Minute)
		counts, err := s.store.Counts(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(80), counts[durable.Succeeded].N)
		require.Equal(t, int32(7), most.Load())
		require.Equal(t, int32(2), mostMail.Load())
		require.NoError(t, stop())
	})
}

func TestWorker_LeavesForeignJobsAndQueuesAlone(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		mine, foreign := durable.NewJob[letter]("mine"), durable.NewJob[letter]("foreign")
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, mine, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		other, elsewhere, ok := s.enqueue(foreign.New(letter{})), s.enqueue(mine.New(letter{}, durable.OnQueue("other"))), s.enqueue(mine.New(letter{}))
		s.pass(time.Minute)
		require.Equal(t, durable.Pending, s.record(other).State)
		require.Equal(t, durable.Pending, s.record(elsewhere).State)
		require.Zero(t, s.record(other).Attempt)
		require.Equal(t, durable.Succeeded, s.record(ok).State)
		require.NoError(t, stop())
	})
}

func TestWorker_PollOnlyFindsWorkWithinTheInterval(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{NoListen: true, PollInterval: 5 * time.Second})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		for range 20 {
			s.pass(7300 * time.Millisecond)
			began := time.Now()
			id := s.enqueue(job.New(letter{}))
			s.pass(7 * time.Second)
			r := s.record(id)
			require.Equal(t, durable.Succeeded, r.State)
			require.LessOrEqual(t, r.StartedAt.Sub(began), 6*time.Second)
		}
		require.NoError(t, stop())
	})
}

func TestWorker_FutureRunStartsWhenDueWithoutAWake(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		w := s.worker(durable.WorkerConfig{PollInterval: 5 * time.Second})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		for _, after := range []time.Duration{2 * time.Second, 300 * time.Millisecond, 950 * time.Millisecond} {
			id := s.enqueue(job.New(letter{}, durable.After(after)))
			s.pass(after - 50*time.Millisecond)
			require.Equal(t, durable.Pending, s.record(id).State)
			s.pass(100 * time.Millisecond)
			require.Equal(t, durable.Succeeded, s.record(id).State, "due after %v", after)
		}
		require.NoError(t, stop())
	})
}

func TestWorker_ExpiredRunIsCancelledNotExecuted(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("mail")
		id := s.enqueue(job.New(letter{}, durable.ExpiresAt(time.Now().Add(time.Second))))
		s.pass(2 * time.Second)
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { t.Error("executed"); return nil })
		stop := s.begin(w)
		s.pass(time.Second)
		r := s.record(id)
		require.Equal(t, durable.Cancelled, r.State)
		require.Equal(t, "expired", *r.Error)
		require.NoError(t, stop())
	})
}

func TestWorker_FaultsAreReportedTogether(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: -3, Terms: lease.Terms{Duration: time.Second, Heartbeat: time.Second}})
		bad := durable.NewJob[letter]("spaces are bad", durable.Priority(9), durable.After(time.Second))
		good := durable.NewJob[letter]("good")
		ok := func(context.Context, *durable.Run[letter]) error { return nil }
		durable.Register(w, bad, ok)
		durable.Register(w, good, ok)
		durable.Register(w, good, ok)
		durable.Register(w, durable.NewJob[letter]("none"), nil)
		durable.AddSchedule(w, "s", good, letter{}, durable.Cron("61 * * * *", "Mars/Phobos"))
		err := w.Run(t.Context())
		require.ErrorIs(t, err, durable.ErrInvalid)
		for _, part := range []string{"spaces are bad", "priority 9", "After is for one run", "registered twice", "no handler",
			"Mars/Phobos", "max concurrent runs -3", "half the lease duration"} {
			require.ErrorContains(t, err, part)
		}
		_, err = bad.Enqueue(t.Context(), s.client, letter{})
		require.ErrorIs(t, err, durable.ErrInvalid)
	})
}

func TestWorker_ScheduleFiresEachOccurrenceOnce(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		job := durable.NewJob[letter]("tick")
		var fired atomic.Int32
		var stops []func() error
		for range 3 {
			w := s.worker(durable.WorkerConfig{})
			durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
				fired.Add(1)
				require.Less(t, time.Since(run.DueAt), 100*time.Millisecond)
				return nil
			})
			durable.AddSchedule(w, "each-ten", job, letter{To: "all"}, durable.Every(10*time.Second))
			stops = append(stops, s.begin(w))
		}
		s.pass(10*time.Minute + time.Second)
		require.InDelta(t, 60, fired.Load(), 1)
		for _, stop := range stops {
			require.NoError(t, stop())
		}
	})
}
