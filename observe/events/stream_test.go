package events_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/observe/events"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

var mail = store.RunInfo{Job: "mail", Queue: "default"}

// sink notes what it is sent, and fails as a test says.
type sink struct {
	mu     sync.Mutex
	at     []time.Duration // of each try
	began  time.Time
	taken  []events.Event
	ids    []string // of batches, of each try
	answer func(n int) error
}

func (s *sink) Send(_ context.Context, batch events.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.ids = append(s.at, time.Since(s.began)), append(s.ids, batch.ID.String())
	if s.answer != nil {
		if err := s.answer(len(s.at)); err != nil {
			return err
		}
	}
	s.taken = append(s.taken, batch.Events...)
	return nil
}

// tries are when batches were sent.
func (s *sink) tries() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.at)
}

// all are the events that were taken.
func (s *sink) all() []events.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.taken)
}

// batches are the ids of what was sent, of each try.
func (s *sink) batches() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

// streaming runs a Stream for a while inside a bubble.
func streaming(t *testing.T, to events.Sink, config events.Config, during func(s *events.Stream)) events.Totals {
	t.Helper()
	s := events.New(to, config)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	during(s)
	cancel()
	running.Wait()
	return s.Totals()
}

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time of the bubble
	synctest.Wait()
}

func settle(s *events.Stream, n int) {
	for range n {
		s.Hooks().RunSettled(observe.RunVerdict{Run: mail, Outcome: store.Success, Verdict: store.Applied})
	}
}

var errAway = errors.New("away")

func TestEventsGoInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &sink{began: time.Now()}
		totals := streaming(t, to, events.Config{}, func(s *events.Stream) {
			settle(s, 3)
			pass(1500 * time.Millisecond)
			require.Equal(t, []time.Duration{time.Second}, to.tries())
			settle(s, 250)
			pass(0)
			require.Equal(t, []time.Duration{time.Second, 1500 * time.Millisecond, 1500 * time.Millisecond}, to.tries()[:3], "full batches wait for nothing")
			pass(time.Minute)
			require.Len(t, to.all(), 253)
			settle(s, 1) // and what waits at the end
		})
		require.Equal(t, events.Totals{Sent: 254}, totals)
		require.Len(t, to.all(), 254)
	})
}

func TestABatchIsSentAgainUntilItIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &sink{began: time.Now(), answer: func(n int) error {
			switch n {
			case 1:
				return errAway
			case 2:
				panic("a fault of the sink's")
			case 3:
				return events.After(errAway, 30*time.Second)
			default:
				return nil
			}
		}}
		totals := streaming(t, to, events.Config{}, func(s *events.Stream) {
			settle(s, 2)
			pass(time.Hour)
		})
		require.Equal(t, events.Totals{Sent: 2, Failed: 3}, totals)
		require.Len(t, to.tries(), 4)
		require.InDelta(t, 30, (to.tries()[3] - to.tries()[2]).Seconds(), 0.1, "as the sink has asked")
		for i, within := range []time.Duration{time.Second, 2 * time.Second} {
			require.InDelta(t, within.Seconds(), (to.tries()[i+1] - to.tries()[i]).Seconds(), within.Seconds()*0.21)
		}
		for _, id := range to.batches() {
			require.Equal(t, to.batches()[0], id, "it is the same batch")
		}
	})
}

func TestABatchThatIsNotTakenIsDroppedAndCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(n int) error
		tries  int64
	}{
		"away":        {func(int) error { return errAway }, 5},
		"permanently": {func(int) error { return events.Permanent(errAway) }, 1},
		"exits":       {func(int) error { runtime.Goexit(); return nil }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				to := &sink{began: time.Now()}
				to.answer = func(n int) error {
					if n > int(c.tries) {
						return nil // the sink is well again
					}
					return c.answer(n)
				}
				totals := streaming(t, to, events.Config{}, func(s *events.Stream) {
					settle(s, 2)
					pass(time.Hour)
					settle(s, 1)
					pass(time.Hour)
				})
				require.Equal(t, events.Totals{Sent: 1, Dropped: 2, Failed: c.tries}, totals)
			})
		})
	}
}

func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := events.SinkFunc(func(ctx context.Context, _ events.Batch) error { <-ctx.Done(); return ctx.Err() })
		totals := streaming(t, hang, events.Config{MaxWaiting: 10}, func(s *events.Stream) {
			pass(time.Second)
			settle(s, 25)
			require.Equal(t, events.Totals{Waiting: 10, Dropped: 15}, s.Totals())
		})
		require.Equal(t, int64(25), totals.Dropped, "what waits at the end has five seconds")

		s := events.New(hang, events.Config{Errors: true, Kinds: []events.Kind{events.RunDead}})
		big := make([]byte, 64<<10)
		for range 6000 {
			s.Hooks().RunSettled(observe.RunVerdict{Run: mail, Outcome: store.Death, Verdict: store.Applied, Error: string(big)})
		}
		require.Less(t, s.Totals().Waiting, 4000, "and so are its bytes")
	})
}

// TestASinkThatHangsChangesNoRun has a worker execute while nothing is taken.
func TestASinkThatHangsChangesNoRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, hangs)
}

func hangs(t *testing.T) {
	hang := events.SinkFunc(func(ctx context.Context, _ events.Batch) error { <-ctx.Done(); return ctx.Err() })
	s := events.New(hang, events.Config{MaxWaiting: 50, Timeout: time.Hour})
	began := time.Now()
	db := memory.New(memory.Config{})
	worker := durable.NewWorker(db, durable.WorkerConfig{Hooks: s.Hooks(), Elapsed: func() time.Duration { return time.Since(began) }, Process: new(durable.Process)})
	job := durable.NewJob[int]("count")
	const runs = 500
	var done sync.WaitGroup
	done.Add(runs)
	durable.Register(worker, job, func(context.Context, *durable.Run[int]) error { done.Done(); return nil })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	client := durable.NewClient(db).WithHooks(s.Hooks())
	for i := range runs {
		_, err := job.Enqueue(ctx, client, i)
		require.NoError(t, err)
	}
	done.Wait()
	cancel()
	require.NoError(t, <-ended)
	counts, err := db.Counts(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(runs), counts[store.Succeeded].N)
	require.Equal(t, 50, s.Totals().Waiting)
	require.Equal(t, int64(3*runs-50), s.Totals().Dropped, "enqueued, started, succeeded")
	running.Wait()
}

// TestWhatAWorkerDoesBecomesEvents has every kind of end happen to a real worker.
func TestWhatAWorkerDoesBecomesEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &sink{began: time.Now()}
		db := memory.New(memory.Config{})
		streaming(t, to, events.Config{Worker: "web-7", Errors: true}, func(s *events.Stream) {
			worker := durable.NewWorker(db, durable.WorkerConfig{Hooks: s.Hooks(), Name: "web-7",
				Elapsed: func() time.Duration { return time.Since(to.began) }, Process: new(durable.Process)})
			job := durable.NewJob[string]("mail", durable.MaxAttempts(2), durable.Tags("t"))
			durable.Register(worker, job, func(_ context.Context, r *durable.Run[string]) error {
				switch r.Args {
				case "fail":
					return fmt.Errorf("no answer: %w", context.DeadlineExceeded)
				case "snooze":
					if r.Attempt == 1 && time.Since(to.began) < time.Minute {
						return durable.Snooze(time.Hour)
					}
				}
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- worker.Run(ctx) }()
			client := durable.NewClient(db).WithHooks(s.Hooks())
			for _, args := range []string{"ok", "fail", "snooze"} {
				_, err := job.Enqueue(ctx, client, args)
				require.NoError(t, err)
			}
			pass(2 * time.Hour)
			cancel()
			require.NoError(t, <-ended)
		})
		seen := map[events.Kind]int{}
		for _, e := range to.all() {
			seen[e.Kind]++
			require.Equal(t, []any{events.Schema, "web-7", "mail", "default"}, []any{e.Schema, e.Worker, e.Run.Job, e.Run.Queue})
			require.Equal(t, []string{"t"}, e.Run.Tags)
			switch e.Kind {
			case events.RunRetried, events.RunDead:
				require.Equal(t, "no answer: context deadline exceeded", *e.Run.Error)
				require.Equal(t, "context.deadlineExceededError", *e.Run.ErrorType)
				require.Equal(t, e.Kind == events.RunRetried, e.Run.RetryAt != nil)
			case events.RunSnoozed:
				require.InDelta(t, 3600, e.Run.RetryAt.Sub(e.At).Seconds(), 1)
			}
		}
		require.Equal(t, map[events.Kind]int{events.RunEnqueued: 3, events.RunStarted: 5, events.RunSucceeded: 2, events.RunRetried: 1,
			events.RunDead: 1, events.RunSnoozed: 1}, seen)
	})
}

func TestLossesBecomeEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &sink{began: time.Now()}
		streaming(t, to, events.Config{}, func(s *events.Stream) {
			h := s.Hooks()
			for _, kind := range []observe.LossKind{observe.LeaseLost, observe.HandlerStuck, observe.WorkerCrashed} {
				h.RunLost(observe.RunLoss{Kind: kind, Job: "mail", Queue: "default", Worker: "gone", CrashCount: 4, Dead: kind == observe.WorkerCrashed})
			}
			h.RunSettled(observe.RunVerdict{Run: mail, Outcome: store.Success, Verdict: store.Rejected})
			h.RunSettled(observe.RunVerdict{Run: mail, Outcome: store.Failure, Verdict: store.Applied, Error: "a secret"})
			s.Worker(events.WorkerHeartbeat, events.State{Executing: 3})
			pass(time.Hour)
		})
		var kinds []events.Kind
		for _, e := range to.all() {
			kinds = append(kinds, e.Kind)
		}
		require.Equal(t, []events.Kind{events.RunLost, events.RunStuck, events.RunReclaimed, events.RunDead, events.RunRefused, events.RunRetried, events.WorkerHeartbeat}, kinds)
		require.Equal(t, "gone", *to.all()[3].Run.LostBy)
		require.True(t, to.all()[3].Run.Crash)
		require.Nil(t, to.all()[5].Run.Error, "texts are passed on only if they are asked for")
		require.Equal(t, 3, to.all()[6].State.Executing)
		require.Nil(t, to.all()[6].Run)
	})
}

// TestAStreamHasNoHooksThatItDoesNotNeed: what is nil costs nothing.
func TestAStreamHasNoHooksThatItDoesNotNeed(t *testing.T) {
	t.Parallel()
	h := events.New(&sink{}, events.Config{Kinds: []events.Kind{events.WorkerStarted}}).Hooks()
	require.True(t, h.Enqueue == nil && h.Execute == nil && h.RunSettled == nil && h.RunLost == nil)
	h = events.New(&sink{}, events.Config{Kinds: []events.Kind{events.RunDead}}).Hooks()
	require.True(t, h.Enqueue == nil && h.Execute == nil && h.RunSettled != nil && h.RunLost != nil)
}

func TestKindsAreRead(t *testing.T) {
	t.Parallel()
	all, err := events.ParseKinds("all")
	require.NoError(t, err)
	require.ElementsMatch(t, events.Kinds(), all)
	some, err := events.ParseKinds("run.dead, worker.*,run.dead")
	require.NoError(t, err)
	require.Equal(t, []events.Kind{events.RunDead, events.WorkerHeartbeat, events.WorkerStarted, events.WorkerStopped}, some)
	for _, bad := range []string{"", "run", "*", "r*", "run.dead,", "run.lost.*", "dead"} {
		_, err := events.ParseKinds(bad)
		require.Error(t, err, bad)
	}
}
