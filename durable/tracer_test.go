package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// diary is a tracer that writes down what it is told.
type diary struct {
	mu      sync.Mutex
	lines   []string
	calls   []durable.StoreCall
	settled []durable.RunVerdict
	lost    []durable.RunLoss
}

type spanKey struct{}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) Enqueue(ctx context.Context, runs []durable.NewRun) (context.Context, func(error)) {
	for i := range runs {
		parent, _ := ctx.Value(spanKey{}).(string)
		runs[i].Trace = parent + "/" + runs[i].Job
	}
	return ctx, func(err error) { d.note("enqueued %d: %v", len(runs), err) }
}

func (d *diary) Execute(ctx context.Context, run durable.RunInfo) (context.Context, func(store.Outcome)) {
	d.note("execute %s %s", run.Job, run.Trace)
	return context.WithValue(ctx, spanKey{}, run.Trace), func(o store.Outcome) {
		d.note("executed %s: %v %s%s", run.Job, o.Kind, o.Error, o.Result)
	}
}

func (d *diary) StoreCalled(call durable.StoreCall) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, call)
}

func (d *diary) RunSettled(v durable.RunVerdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled = append(d.settled, v)
}

func (d *diary) RunLost(loss durable.RunLoss) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = append(d.lost, loss)
}

func (d *diary) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, "\n")
}

func (d *diary) losses() (kinds []durable.LossKind) {
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

func TestTracer_CarriesTheTraceFromEnqueueToHandler(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		book := &diary{}
		w := s.worker(durable.WorkerConfig{Tracer: book})
		client := s.client.WithTracer(book)
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

func TestTracer_OfSomethingElseThanAClient(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		book := &diary{}
		job := durable.NewJob[letter]("mail")
		_, err := job.Enqueue(t.Context(), durable.Traced(s.store, book), letter{})
		require.NoError(t, err)
		s.store.cutBefore("Enqueue", 1)
		_, err = job.Enqueue(t.Context(), durable.Traced(s.store, book), letter{})
		require.ErrorIs(t, err, errCut)
		require.Equal(t, "enqueued 1: <nil>\nenqueued 1: connection cut", book.text())
	})
}

func TestTracer_IsToldWhatGoesWrong(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		book, other := &diary{}, &diary{}
		job := durable.NewJob[letter]("mail")
		release := make(chan struct{})
		w := s.worker(durable.WorkerConfig{Name: "one", Tracer: book})
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
		w2 := s.worker(durable.WorkerConfig{Name: "two", Tracer: other})
		durable.Register(w2, job, work)
		stop2 := s.begin(w2)
		s.pass(40 * time.Second)
		s.store.cutBefore("Renew", 0)
		beats, _ := book.called("renew", true)
		require.Positive(t, beats)
		lost := append(book.losses(), other.losses()...)
		require.ElementsMatch(t, []durable.LossKind{durable.LeaseLost, durable.HandlerStuck, durable.WorkerCrashed}, lost)
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

// brokenTracer panics wherever it can, and tampers.
type brokenTracer struct{ within bool }

func (b brokenTracer) Enqueue(_ context.Context, runs []durable.NewRun) (context.Context, func(error)) {
	runs[0].Queue, runs[0].Args, runs[0].Trace = "elsewhere", nil, strings.Repeat("x", 600)
	if b.within {
		runs[0].Trace = "fine"
		return nil, nil
	}
	panic("enqueue")
}

func (b brokenTracer) Execute(ctx context.Context, _ durable.RunInfo) (context.Context, func(store.Outcome)) {
	if b.within {
		return ctx, func(store.Outcome) { panic("executed") }
	}
	panic("execute")
}
func (brokenTracer) StoreCalled(durable.StoreCall) { panic("called") }
func (brokenTracer) RunSettled(durable.RunVerdict) { panic("settled") }
func (brokenTracer) RunLost(durable.RunLoss)       { panic("lost") }

func TestTracer_ThatPanicsChangesNothing(t *testing.T) {
	for _, within := range []bool{false, true} {
		t.Run(fmt.Sprintf("within %v", within), func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				job := durable.NewJob[letter]("mail", durable.Retry(durable.Fixed(time.Second)))
				w := s.worker(durable.WorkerConfig{Tracer: brokenTracer{within}})
				durable.Register(w, job, func(_ context.Context, run *durable.Run[letter]) error {
					if run.Attempt == 1 {
						return errBoom
					}
					return run.SetResult(run.Args.To)
				})
				stop := s.begin(w)
				receipt, err := job.Enqueue(t.Context(), s.client.WithTracer(brokenTracer{within}), letter{To: "eve"})
				require.NoError(t, err)
				s.pass(10 * time.Second)
				r := s.record(receipt.ID)
				require.Equal(t, durable.Succeeded, r.State)
				require.Equal(t, "default", r.Queue)
				require.JSONEq(t, `"eve"`, string(r.Result))
				require.Equal(t, 2, r.Attempt)
				require.Contains(t, s.log.String(), "the tracer has panicked")
				require.NoError(t, stop())
			})
		})
	}
}

func TestTracer_ScheduledRunsCarryNoTrace(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		book := &diary{}
		job := durable.NewJob[letter]("tick")
		w := s.worker(durable.WorkerConfig{Tracer: book})
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
