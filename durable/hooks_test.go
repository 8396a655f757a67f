package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// diary writes down what its hooks report.
type diary struct {
	mu      sync.Mutex
	lines   []string
	calls   []observe.StoreCall
	settled []observe.RunVerdict
	lost    []observe.RunLoss
}

type spanKey struct{}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) hooks() observe.Hooks {
	return observe.Hooks{Enqueue: d.enqueue, Execute: d.execute, StoreCalled: d.storeCalled, RunSettled: d.runSettled, RunLost: d.runLost}
}

func (d *diary) enqueue(ctx context.Context, start observe.EnqueueStart) (context.Context, func(observe.EnqueueEnd)) {
	for i := range start.Runs {
		parent, _ := ctx.Value(spanKey{}).(string)
		start.Runs[i].Trace = parent + "/" + start.Runs[i].Job
	}
	return ctx, func(end observe.EnqueueEnd) { d.note("enqueued %d: %v", len(start.Runs), end.Err) }
}

func (d *diary) execute(ctx context.Context, start observe.ExecuteStart) (context.Context, func(observe.ExecuteEnd)) {
	run := start.Run
	d.note("execute %s %s", run.Job, run.Trace)
	return context.WithValue(ctx, spanKey{}, run.Trace), func(end observe.ExecuteEnd) {
		d.note("executed %s: %v %s%s", run.Job, end.Outcome.Kind, end.Outcome.Error, end.Outcome.Result)
	}
}

func (d *diary) storeCalled(call observe.StoreCall) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, call)
}

func (d *diary) runSettled(v observe.RunVerdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled = append(d.settled, v)
}

func (d *diary) runLost(loss observe.RunLoss) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = append(d.lost, loss)
}

func (d *diary) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, "\n")
}

func (d *diary) losses() (kinds []observe.LossKind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lost {
		kinds = append(kinds, l.Kind)
	}
	return kinds
}

func (d *diary) called(verb string, failed bool) (n, runs int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		if c.Verb == verb && (c.Err != nil) == failed {
			n, runs = n+1, runs+c.Runs
		}
	}
	return n, runs
}

func TestHooks_CarryTheTraceFromEnqueueToHandler(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		book := &diary{}
		w := s.worker(durable.WorkerConfig{Hooks: book.hooks()})
		client := s.client.WithHooks(book.hooks())
		first, second := durable.NewJob[letter]("first"), durable.NewJob[letter]("second")
		durable.Register(w, first, func(ctx context.Context, run *durable.Run[letter]) error {
			_, err := second.Enqueue(ctx, client, run.Args)
			return errors.Join(err, run.SetResult("a secret"))
		})
		durable.Register(w, second, func(context.Context, *durable.Run[letter]) error { return durable.Permanent(errBoom) })
		stop := s.begin(w)
		runs := []durable.NewRun{first.New(letter{})}
		_, err := client.Enqueue(context.WithValue(t.Context(), spanKey{}, "web"), runs...)
		require.NoError(t, err)
		require.Empty(t, runs[0].Trace, "the caller's runs are the caller's")
		s.pass(time.Second)
		require.Equal(t, strings.Join([]string{"enqueued 1: <nil>", "execute first web/first", "enqueued 1: <nil>",
			"executed first: success ", "execute second web/first/second", "executed second: dead boom"}, "\n"), book.text())
		require.Len(t, book.settled, 2)
		require.Equal(t, store.Applied, book.settled[0].Verdict)
		require.Equal(t, "web/first", book.settled[0].Run.Trace)
		require.Equal(t, store.Death, book.settled[1].Outcome)
		for verb, want := range map[string]int{"claim": 2, "settle": 2, "declare": 0} {
			n, got := book.called(verb, false)
			require.Positive(t, n, verb)
			require.Equal(t, want, got, verb)
		}
		require.NoError(t, stop())
	})
}

func TestHooks_OfSomethingElseThanAClient(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		book := &diary{}
		job := durable.NewJob[letter]("mail")
		_, err := job.Enqueue(t.Context(), durable.Observed(s.store, book.hooks()), letter{})
		require.NoError(t, err)
		s.store.cutBefore("Enqueue", 1)
		_, err = job.Enqueue(t.Context(), durable.Observed(s.store, book.hooks()), letter{})
		require.ErrorIs(t, err, errCut)
		require.Equal(t, "enqueued 1: <nil>\nenqueued 1: connection cut", book.text())
	})
}

func TestHooks_ReportWhatGoesWrong(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		book, other := &diary{}, &diary{}
		job := durable.NewJob[letter]("mail")
		release := make(chan struct{})
		w := s.worker(durable.WorkerConfig{Name: "one", Hooks: book.hooks()})
		calls := 0
		work := func(context.Context, *durable.Run[letter]) error {
			if calls++; calls == 1 {
				<-release
			}
			return nil
		}
		durable.Register(w, job, work)
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		s.store.cutBefore("Renew", -1)
		w2 := s.worker(durable.WorkerConfig{Name: "two", Hooks: other.hooks()})
		durable.Register(w2, job, work)
		stop2 := s.begin(w2)
		s.pass(40 * time.Second)
		s.store.cutBefore("Renew", 0)
		beats, _ := book.called("renew", true)
		require.Positive(t, beats)
		lost := append(book.losses(), other.losses()...)
		require.ElementsMatch(t, []observe.LossKind{observe.LeaseLost, observe.HandlerStuck, observe.WorkerCrashed}, lost)
		for _, l := range append(book.lost, other.lost...) {
			require.Equal(t, id, l.ID)
			require.Equal(t, "mail", l.Job)
			require.Equal(t, "default", l.Queue)
			require.Equal(t, "one", l.Worker)
			require.False(t, l.Dead)
		}
		close(release)
		s.pass(time.Second)
		var verdicts []store.Verdict
		for _, v := range append(book.settled, other.settled...) {
			verdicts = append(verdicts, v.Verdict)
		}
		require.ElementsMatch(t, []store.Verdict{store.Applied, store.Rejected}, verdicts)
		require.NoError(t, stop())
		require.NoError(t, stop2())
	})
}

// broken are hooks that panic wherever they can, and tamper; within: only in what
// they begin.
func broken(within bool) observe.Hooks {
	return observe.Hooks{
		Enqueue: func(_ context.Context, start observe.EnqueueStart) (context.Context, func(observe.EnqueueEnd)) {
			runs := start.Runs
			runs[0].Queue, runs[0].Args, runs[0].Trace = "elsewhere", nil, strings.Repeat("x", 600)
			if within {
				runs[0].Trace = "fine"
				return nil, nil
			}
			panic("enqueue")
		},
		Execute: func(ctx context.Context, _ observe.ExecuteStart) (context.Context, func(observe.ExecuteEnd)) {
			if within {
				return ctx, func(observe.ExecuteEnd) { panic("executed") }
			}
			panic("execute")
		},
		StoreCalled: func(observe.StoreCall) { panic("called") },
		RunSettled:  func(observe.RunVerdict) { panic("settled") },
		RunLost:     func(observe.RunLoss) { panic("lost") },
		RunFailed:   func(context.Context, observe.RunFailure) { panic("failed") },
	}
}

func TestHooks_ThatPanicsChangesNothing(t *testing.T) {
	for _, within := range []bool{false, true} {
		t.Run(fmt.Sprintf("within %v", within), func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				job := durable.NewJob[letter]("mail", durable.Retry(durable.Fixed(time.Second)))
				w := s.worker(durable.WorkerConfig{Hooks: broken(within)})
				durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
					if run.Attempt == 1 {
						return errBoom
					}
					return run.SetResult(run.Args.To)
				})
				stop := s.begin(w)
				receipt, err := job.Enqueue(t.Context(), s.client.WithHooks(broken(within)), letter{To: "eve"})
				require.NoError(t, err)
				s.pass(10 * time.Second)
				r := s.record(receipt.ID)
				require.Equal(t, durable.Succeeded, r.State)
				require.Equal(t, "default", r.Queue)
				require.JSONEq(t, `"eve"`, string(r.Result))
				require.Equal(t, 2, r.Attempt)
				require.Contains(t, s.log.String(), "a hook has panicked")
				require.NoError(t, stop())
			})
		})
	}
}

func TestHooks_ScheduledRunsCarryNoTrace(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		book := &diary{}
		job := durable.NewJob[letter]("tick")
		w := s.worker(durable.WorkerConfig{Hooks: book.hooks()})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		durable.AddSchedule(w, "each-ten", job, letter{}, durable.Every(10*time.Second))
		stop := s.begin(w)
		s.pass(11 * time.Second)
		require.Contains(t, book.text(), "execute tick \n")
		_, made := book.called("materialize", false)
		require.Positive(t, made)
		require.NoError(t, stop())
	})
}

// failureBook keeps what RunFailed is called with.
type failureBook struct {
	mu  sync.Mutex
	all []observe.RunFailure
}

func (b *failureBook) add(_ context.Context, f observe.RunFailure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, f)
}

func (b *failureBook) failures() []observe.RunFailure {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

func TestHooks_RunFailedHasTheWholeRecord(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		book := &failureBook{}
		w := s.worker(durable.WorkerConfig{Hooks: observe.Hooks{RunFailed: book.add}})
		job := durable.NewJob[letter]("mail", durable.MaxAttempts(2), durable.Retry(durable.Fixed(time.Minute)))
		durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
			switch run.Args.To {
			case "snooze":
				return durable.Snooze(time.Hour)
			case "cancel":
				return durable.Cancel(errBoom)
			case "panic":
				panic("broken")
			case "good":
				return nil
			}
			return fmt.Errorf("to %s: %w", run.Args.To, errBoom)
		})
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{To: "ann"}, durable.Tags("vip")))
		for _, to := range []string{"snooze", "cancel", "good"} {
			s.enqueue(job.New(letter{To: to}))
		}
		s.store.cutAfter("Settle", 1) // the answer to the first is lost, and it is repeated
		s.pass(30 * time.Second)
		all := book.failures()
		require.Len(t, all, 1)
		require.ErrorIs(t, all[0].Err, errBoom)
		require.False(t, all[0].Dead)
		require.Equal(t, durable.Pending, all[0].Record.State)
		require.Equal(t, id, all[0].Record.ID)
		s.pass(time.Minute)
		all = book.failures()
		require.Len(t, all, 2)
		require.True(t, all[1].Dead)
		require.Equal(t, durable.Dead, all[1].Record.State)
		require.Equal(t, []string{"vip"}, all[1].Record.Tags)
		require.JSONEq(t, `{"to":"ann"}`, string(all[1].Record.Args))
		require.Len(t, all[1].Record.Attempts, 2)

		s.enqueue(job.New(letter{To: "panic"}, durable.MaxAttempts(1)))
		s.pass(time.Second)
		all = book.failures()
		require.Len(t, all, 3)
		require.ErrorContains(t, all[2].Err, "panic: broken")
		require.Contains(t, all[2].Stack, "hooks_test.go")
		require.NoError(t, stop())
	})
}

// A hook that hangs stops nothing else, and what waits for it is reported when the
// worker stops.
func TestHooks_RunFailedMayTakeItsTime(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		book := &failureBook{}
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 500, Hooks: observe.Hooks{RunFailed: func(ctx context.Context, f observe.RunFailure) {
			if book.add(ctx, f); len(book.failures()) == 1 {
				<-ctx.Done() // its limit
			}
		}}})
		job := durable.NewJob[letter]("mail")
		durable.Register(w, job, func(_ context.Context, _ *durable.Run[letter]) error { return durable.Permanent(errBoom) })
		stop := s.begin(w)
		s.enqueue(job.New(letter{}))
		s.pass(time.Second) // the hook has taken the first, alone
		ids := make([]durable.RunID, 1200)
		for i := range ids {
			ids[i] = s.enqueue(job.New(letter{}))
		}
		s.pass(20 * time.Second)
		require.Len(t, book.failures(), 1)
		for _, id := range ids {
			require.Equal(t, durable.Dead, s.record(id).State)
		}
		s.pass(20 * time.Second)
		require.Len(t, book.failures(), 1+1000)
		require.True(t, strings.Contains(s.log.String(), `too many are waiting for it" event=hook.failures_dropped dropped=200`), "what is dropped is logged") //nolint:testifylint // the log is long
		last := s.enqueue(job.New(letter{}))
		s.pass(time.Millisecond)
		require.NoError(t, stop())
		all := book.failures()
		require.Equal(t, last, all[len(all)-1].Record.ID)
	})
}

func TestHooks_RunFailedIsCalledForACrashThatEndsTheRun(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		book := &failureBook{}
		job := durable.NewJob[letter]("mail", durable.OnCrash(durable.CrashDead))
		id := s.enqueue(job.New(letter{}))
		s.holds(t, id)
		w := s.worker(durable.WorkerConfig{Hooks: observe.Hooks{RunFailed: book.add}})
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		s.pass(2 * time.Minute)
		all := book.failures()
		require.Len(t, all, 1)
		require.True(t, all[0].Dead)
		require.True(t, all[0].Crash)
		require.Equal(t, durable.Dead, all[0].Record.State)
		require.EqualError(t, all[0].Err, *all[0].Record.Error)
		require.NoError(t, stop())
	})
}
