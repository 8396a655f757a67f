package durable_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

func TestMiddleware_FirstIsOutermost(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		var mu sync.Mutex
		var order []string
		note := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, text)
		}
		layer := func(name string) durable.Middleware {
			return func(ctx context.Context, _ durable.RunInfo, next func(context.Context) error) error {
				note(name + " in")
				defer note(name + " out")
				return next(ctx)
			}
		}
		list := []durable.Middleware{layer("a"), layer("b")}
		w := s.worker(durable.WorkerConfig{Middleware: list})
		list[0] = nil // the worker has its own list
		job := durable.NewJob[letter]("mail")
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { note("handler"); return nil })
		stop := s.begin(w)
		id := s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		require.Equal(t, durable.Succeeded, s.record(id).State)
		require.Equal(t, []string{"a in", "b in", "handler", "b out", "a out"}, order)
		require.NoError(t, stop())
	})
}

func TestMiddleware_SeesTheRunAndHandsItsContextOn(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		type key struct{}
		var seen []durable.RunInfo
		w := s.worker(durable.WorkerConfig{Middleware: []durable.Middleware{
			func(ctx context.Context, run durable.RunInfo, next func(context.Context) error) error {
				seen = append(seen, run)
				return next(context.WithValue(ctx, key{}, run.ID))
			},
		}})
		job := durable.NewJob[letter]("mail", durable.OnQueue("default"), durable.Timeout(time.Minute), durable.Retry(durable.Fixed(time.Second)))
		var fence any
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[letter]) error {
			require.Equal(t, run.ID, ctx.Value(key{}))
			require.Equal(t, "acme", run.Metadata["tenant"])
			fence = run.Fence
			if run.Attempt == 1 {
				return errBoom
			}
			return nil
		})
		stop := s.begin(w)
		run := job.New(letter{}, durable.Unique("k"), durable.Tags("a"), durable.Metadata(map[string]string{"tenant": "acme"}))
		run.Trace = "from-the-caller"
		id := s.enqueue(run)
		s.pass(10 * time.Second)
		r := s.record(id)
		require.Len(t, seen, 2)
		first, last := seen[0], seen[1]
		require.Equal(t, []int{1, 2}, []int{first.Attempt, last.Attempt})
		require.Less(t, first.Fence, last.Fence)
		last.Attempt = 0
		require.Equal(t, durable.RunInfo{ID: id, Job: "mail", Queue: "default", MaxAttempts: 3, Fence: r.Fence,
			DueAt: r.DueAt, CreatedAt: r.CreatedAt, Timeout: time.Minute, Trace: "from-the-caller",
			Key: "k", Tags: []string{"a"}, Metadata: map[string]string{"tenant": "acme"}}, last)
		require.Equal(t, r.Fence, fence)
		require.NoError(t, stop())
	})
}

func TestMiddleware_DecidesTheOutcome(t *testing.T) {
	type next = func(context.Context) error
	cases := []struct {
		name       string
		middleware func(ctx context.Context, next next) error
		handler    error
		state      durable.State
		called     int32
		text       string
	}{
		{"what next returned is handed on", func(ctx context.Context, next next) error { return next(ctx) }, errBoom, durable.Dead, 2, "boom"},
		{"an error can be swallowed", func(ctx context.Context, next next) error { _ = next(ctx); return nil }, errBoom, durable.Succeeded, 1, ""},
		{"a run can be cancelled without its handler", func(context.Context, next) error { return durable.Cancel(errors.New("not today")) }, nil, durable.Cancelled, 0, "not today"},
		{"a run succeeds without its handler", func(context.Context, next) error { return nil }, errBoom, durable.Succeeded, 0, ""},
		{"a panic is a failed attempt", func(context.Context, next) error { panic("outer") }, nil, durable.Dead, 0, "panic: outer"},
		{"goexit is a failed attempt", func(context.Context, next) error { runtime.Goexit(); return nil }, nil, durable.Dead, 0, "runtime.Goexit"},
		{"a handler's panic can be recovered", func(ctx context.Context, next next) (err error) {
			defer func() { recover(); err = durable.Permanent(errors.New("recovered")) }() //nolint:errcheck // on purpose
			return next(ctx)
		}, errPanic, durable.Dead, 1, "recovered"},
		{"next can be called again", func(ctx context.Context, next next) error {
			return errors.Join(next(ctx), next(ctx))
		}, nil, durable.Succeeded, 2, ""},
		{"a deadline of its own is an ordinary failure", func(ctx context.Context, next next) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return next(ctx)
		}, errWait, durable.Dead, 2, "deadline exceeded"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				w := s.worker(durable.WorkerConfig{Middleware: []durable.Middleware{
					func(ctx context.Context, _ durable.RunInfo, next func(context.Context) error) error {
						return c.middleware(ctx, next)
					},
				}})
				job := durable.NewJob[letter]("mail", durable.MaxAttempts(2), durable.Retry(durable.Fixed(time.Second)))
				var called atomic.Int32
				durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error {
					called.Add(1)
					switch {
					case errors.Is(c.handler, errPanic):
						panic("inner")
					case errors.Is(c.handler, errWait):
						<-ctx.Done()
						return ctx.Err()
					default:
						return c.handler
					}
				})
				stop := s.begin(w)
				id := s.enqueue(job.New(letter{}))
				s.pass(20 * time.Second)
				r := s.record(id)
				require.Equal(t, c.state, r.State)
				require.Equal(t, c.called, called.Load())
				if c.text != "" {
					require.Contains(t, *r.Error, c.text)
				}
				require.NoError(t, stop())
			})
		})
	}
}

var (
	errPanic = errors.New("the handler panics")
	errWait  = errors.New("the handler waits for its context")
)

func TestMiddleware_SeesThatArgsCannotBeDecoded(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		var got error
		w := s.worker(durable.WorkerConfig{Middleware: []durable.Middleware{
			func(ctx context.Context, _ durable.RunInfo, next func(context.Context) error) error {
				got = next(ctx)
				return durable.Permanent(got)
			},
		}})
		job := durable.NewJob[letter]("mail")
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		bad := job.New(letter{})
		bad.Args = []byte(`{"to": 5}`)
		id := s.enqueue(bad)
		s.pass(time.Second)
		require.ErrorContains(t, got, "decode args")
		require.Equal(t, durable.Dead, s.record(id).State)
		require.NoError(t, stop())
	})
}

func TestMiddleware_NilIsRefused(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		pass := func(ctx context.Context, _ durable.RunInfo, next func(context.Context) error) error { return next(ctx) }
		w := s.worker(durable.WorkerConfig{Middleware: []durable.Middleware{pass, nil}})
		require.ErrorContains(t, w.Faults(), "middleware 1 is nil")
	})
}

// OutcomeOf says before the worker does what becomes of an attempt.
func TestOutcomeOf(t *testing.T) {
	cases := map[string]struct {
		handler func(ctx context.Context) error
		cause   string // what interrupts it
		options []durable.Option
		want    store.OutcomeKind
	}{
		"success":    {handler: func(context.Context) error { return nil }, want: store.Success},
		"failure":    {handler: func(context.Context) error { return errBoom }, want: store.Failure},
		"last":       {handler: func(context.Context) error { return errBoom }, options: []durable.Option{durable.MaxAttempts(1)}, want: store.Death},
		"later":      {handler: func(context.Context) error { return durable.RetryAfter(time.Hour, errBoom) }, want: store.Failure},
		"permanent":  {handler: func(context.Context) error { return durable.Permanent(errBoom) }, want: store.Death},
		"snooze":     {handler: func(context.Context) error { return durable.Snooze(time.Hour) }, want: store.Snoozed},
		"cancel":     {handler: func(context.Context) error { return durable.Cancel(errBoom) }, want: store.Cancellation},
		"wrapped":    {handler: func(context.Context) error { return fmt.Errorf("later: %w", durable.Snooze(time.Hour)) }, want: store.Snoozed},
		"drained":    {handler: waits, cause: "drain", want: store.HandedBack},
		"cancelled":  {handler: waits, cause: "cancel", want: store.Cancellation},
		"timed out":  {handler: waits, options: []durable.Option{durable.Timeout(time.Second)}, want: store.Failure},
		"lease lost": {handler: waits, cause: "cut", want: store.HandedBack},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				var said, decided store.OutcomeKind
				w := s.worker(durable.WorkerConfig{
					DrainTimeout: -1,
					Middleware: []durable.Middleware{func(ctx context.Context, run durable.RunInfo, next func(context.Context) error) error {
						err := next(ctx)
						said = durable.OutcomeOf(ctx, run, err)
						return err
					}},
					Hooks: observe.Hooks{Execute: func(context.Context, observe.ExecuteStart) (context.Context, func(observe.ExecuteEnd)) {
						return nil, func(end observe.ExecuteEnd) { decided = end.Outcome.Kind }
					}},
				})
				job := durable.NewJob[letter]("mail", durable.Retry(durable.Fixed(time.Hour)))
				durable.Register(w, job, func(ctx context.Context, _ *durable.Run[letter]) error { return c.handler(ctx) })
				stop := s.begin(w)
				id := s.enqueue(job.New(letter{}, c.options...))
				s.pass(100 * time.Millisecond)
				switch c.cause {
				case "cut":
					s.store.down()
				case "cancel":
					_, err := operate.New(s.store, operate.Config{}).As("ann").Cancel(t.Context(), "no more", id)
					require.NoError(t, err)
				}
				if c.cause != "drain" {
					s.pass(time.Minute)
				}
				s.store.up()
				require.NoError(t, stop())
				require.Equal(t, c.want, said)
				require.Equal(t, decided, said)
			})
		})
	}
}

func waits(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestWorker_UseAddsMiddleware(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		var order []string
		named := func(name string) durable.Middleware {
			return func(ctx context.Context, _ durable.RunInfo, next func(context.Context) error) error {
				order = append(order, name)
				return next(ctx)
			}
		}
		w := s.worker(durable.WorkerConfig{Middleware: []durable.Middleware{named("config")}})
		w.Use(named("first"), named("second"))
		job := durable.NewJob[letter]("mail")
		durable.Register(w, job, func(context.Context, *durable.Run[letter]) error { return nil })
		stop := s.begin(w)
		s.enqueue(job.New(letter{}))
		s.pass(time.Second)
		require.Equal(t, []string{"config", "first", "second"}, order)
		w.Use(named("late"))
		require.ErrorContains(t, w.Faults(), "middleware: added after Worker.Run had begun")
		require.NoError(t, stop())

		w = s.worker(durable.WorkerConfig{})
		w.Use(nil)
		require.ErrorContains(t, w.Faults(), "middleware 0 is nil")
	})
}

// TestWhyArgsDoNotFitDoesNotQuoteThem: who may see errors may not see all args.
func TestWhyArgsDoNotFitDoesNotQuoteThem(t *testing.T) {
	type charge struct {
		Card int       `json:"card"`
		At   time.Time `json:"at"`
	}
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{})
		job := durable.NewJob[charge]("charge", durable.DeadOnMisfit())
		durable.Register(w, job, func(context.Context, *durable.Run[charge]) error { return nil })
		texts := map[string]string{`{"card":4711.4711}`: `decode args: field "card" holds a number, want int`, `{"at":"4711-canary"}`: "decode args: they do not fit durable_test.charge"}
		ids := map[string]durable.RunID{}
		for args := range texts {
			bad := job.New(charge{})
			bad.Args = []byte(args)
			ids[args] = s.enqueue(bad)
		}
		stop := s.begin(w)
		s.pass(time.Second)
		for args, text := range texts {
			require.Equal(t, text, *s.record(ids[args]).Error)
		}
		require.NoError(t, stop())
	})
}
