package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

var copying = durable.NewJob[struct{}]("copying", durable.Retry(durable.Fixed(time.Second)))

// reporting counts the reports that reach a store, and can be made slow.
type reporting struct {
	durable.Store
	mu      sync.Mutex
	reports []store.Report
	at      []time.Time
	slow    time.Duration
}

func (s *reporting) Report(ctx context.Context, holder store.Holder, report store.Report) error {
	s.mu.Lock()
	s.reports, s.at = append(s.reports, report), append(s.at, time.Now())
	slow := s.slow
	s.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.Store.Report(ctx, holder, report)
}

// perform runs one handler, to the end of its run, on a store that counts.
func (s *scene) perform(handler func(ctx context.Context, run *durable.Run[struct{}]) error, options ...durable.Option) (*reporting, durable.Record) {
	s.t.Helper()
	store := &reporting{Store: s.store}
	began := time.Now()
	w := durable.NewWorker(store, durable.WorkerConfig{Elapsed: func() time.Duration { return time.Since(began) }, CancelGrace: time.Second})
	durable.Register(w, copying, handler)
	stop := s.begin(w)
	id := s.enqueue(copying.New(struct{}{}, options...))
	_, err := s.client.Wait(s.t.Context(), id)
	require.NoError(s.t, err)
	require.NoError(s.t, stop())
	return store, s.record(id)
}

func TestProgress(t *testing.T) {
	t.Run("at most one report a second reaches the store, the latest by itself", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			db, record := s.perform(func(ctx context.Context, run *durable.Run[struct{}]) error {
				for i := range 1000 { // ten seconds
					if err := run.Progress(ctx, float64(i)/1000, "copying"); err != nil {
						return err
					}
					<-time.After(10 * time.Millisecond)
				}
				<-time.After(time.Minute)
				require.Equal(t, 0.999, s.record(run.ID).Progress.Fraction, "no one called any more")
				return run.Progress(ctx, 1, strings.Repeat("é", 2000)+"\x00\xff")
			})
			require.InDelta(t, 12, len(db.reports), 1)
			for i := range db.at[1:] {
				require.GreaterOrEqual(t, db.at[i+1].Sub(db.at[i]), time.Second)
			}
			require.Equal(t, 1.0, record.Progress.Fraction)
			require.LessOrEqual(t, len(record.Progress.Note), store.MaxNoteSize)
			require.True(t, strings.HasSuffix(record.Progress.Note, "(cut)"), record.Progress.Note)
		})
	})
	t.Run("what cannot be a fraction, or a checkpoint, is refused", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			store, _ := s.perform(func(ctx context.Context, run *durable.Run[struct{}]) error {
				for _, fraction := range []float64{-0.1, 1.1, math.NaN(), math.Inf(1)} {
					require.ErrorIs(t, run.Progress(ctx, fraction, ""), durable.ErrInvalid)
				}
				for _, value := range []any{make(chan int), "\x00", strings.Repeat("x", store.MaxArgsSize), "\xff"} {
					require.ErrorIs(t, run.Checkpoint(ctx, value), durable.ErrInvalid)
				}
				found, err := run.LastCheckpoint(ctx, new(int))
				require.False(t, found)
				return err
			})
			require.Empty(t, store.reports)
		})
	})
	t.Run("a checkpoint takes the progress that waits along", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			store, record := s.perform(func(ctx context.Context, run *durable.Run[struct{}]) error {
				return errors.Join(run.Progress(ctx, 0.1, "one"), run.Progress(ctx, 0.2, "two"), run.Checkpoint(ctx, 2), run.Checkpoint(ctx, 3))
			})
			require.Len(t, store.reports, 3)
			require.Equal(t, "two", record.Progress.Note)
			require.JSONEq(t, `3`, string(record.Checkpoint))
		})
	})
	t.Run("nothing is reported after the handler has returned, and nothing holds it up", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			var kept *durable.Run[struct{}]
			began := time.Now()
			store, _ := s.perform(func(ctx context.Context, run *durable.Run[struct{}]) error {
				kept = run
				return errors.Join(run.Progress(ctx, 0.1, ""), run.Progress(ctx, 0.2, ""))
			})
			require.Less(t, time.Since(began), time.Second)
			s.pass(time.Minute)
			require.Len(t, store.reports, 1)
			require.ErrorIs(t, kept.Progress(t.Context(), 1, ""), lease.ErrLost)
			require.ErrorIs(t, kept.Checkpoint(t.Context(), 1), lease.ErrLost)
		})
	})
	t.Run("a report under way ends with the handler", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			store := &reporting{Store: s.store, slow: time.Hour}
			began := time.Now()
			w := durable.NewWorker(store, durable.WorkerConfig{Elapsed: func() time.Duration { return time.Since(began) }})
			durable.Register(w, copying, func(ctx context.Context, run *durable.Run[struct{}]) error {
				go func() { _ = run.Checkpoint(ctx, 1) }()
				<-time.After(time.Second)
				return nil
			})
			stop := s.begin(w)
			id := s.enqueue(copying.New(struct{}{}))
			_, err := s.client.Wait(t.Context(), id)
			require.NoError(t, err)
			require.Less(t, time.Since(began), 2*time.Second)
			require.NoError(t, stop())
		})
	})
	t.Run("a handler that drains can still leave a checkpoint, and the next attempt finds it", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			handler := func(ctx context.Context, run *durable.Run[struct{}]) error {
				var page int
				if found, err := run.LastCheckpoint(ctx, &page); found || err != nil {
					require.Equal(t, 7, page)
					return err
				}
				<-ctx.Done()
				require.NoError(t, run.Checkpoint(ctx, 7))
				return ctx.Err()
			}
			one := s.worker(durable.WorkerConfig{DrainTimeout: time.Second, CancelGrace: time.Second})
			durable.Register(one, copying, handler)
			stop := s.begin(one)
			id := s.enqueue(copying.New(struct{}{}))
			s.pass(time.Second)
			require.NoError(t, stop())
			require.Equal(t, durable.Pending, s.record(id).State)
			two := s.worker(durable.WorkerConfig{})
			durable.Register(two, copying, handler)
			stop = s.begin(two)
			records, err := s.client.Wait(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, durable.Succeeded, records[0].State)
			require.NoError(t, stop())
		})
	})
}

func TestLogLines(t *testing.T) {
	t.Run("what a handler logs is kept with the attempt and goes to the worker's logger", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			w := s.worker(durable.WorkerConfig{})
			durable.Register(w, copying, func(_ context.Context, run *durable.Run[struct{}]) error {
				run.Log().With("table", "users").WithGroup("g").Info("copied\x00 \xff \xed\xa0\x80", "rows", 7)
				run.Log().Debug("a detail")
				if run.Attempt == 1 {
					return errBoom
				}
				return nil
			})
			defer s.ended(s.begin(w))
			id := s.enqueue(copying.New(struct{}{}))
			_, err := s.client.Wait(t.Context(), id)
			require.NoError(t, err)
			attempts := s.record(id).Attempts
			require.Len(t, attempts, 2)
			for _, a := range attempts {
				require.Regexp(t, `^time=\S+Z level=INFO msg="copied\\x00 \\xff \\xed\\xa0\\x80" table=users g.rows=7$`, *a.Log)
			}
			require.Contains(t, s.log.String(), "table=users g.rows=7")
			require.Contains(t, s.log.String(), "a detail")
			require.Contains(t, s.log.String(), "attempt=2")
		})
	})
	t.Run("the latest lines are kept, bounded, with a mark", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			_, record := s.perform(func(_ context.Context, run *durable.Run[struct{}]) error {
				for i := range 5000 {
					run.Log().Info("line", "n", i)
				}
				return nil
			})
			text := *record.Attempts[0].Log
			require.True(t, strings.HasPrefix(text, "… (earlier lines cut)\n"))
			require.True(t, strings.HasSuffix(text, "n=4999"))
			require.Equal(t, store.MaxLogLines, strings.Count(text, "\n"))
			_, record = s.perform(func(_ context.Context, run *durable.Run[struct{}]) error {
				for range 9 {
					run.Log().Info(strings.Repeat("x", 1<<20))
				}
				return nil
			})
			text = *record.Attempts[0].Log
			require.LessOrEqual(t, len(text), store.MaxLogSize)
			require.Equal(t, 3, strings.Count(text, " … (cut)"))
		})
	})
	t.Run("without them a handler's logger is the worker's", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			w := s.worker(durable.WorkerConfig{NoRunLog: true})
			durable.Register(w, copying, func(_ context.Context, run *durable.Run[struct{}]) error {
				run.Log().Info("hello")
				return nil
			})
			defer s.ended(s.begin(w))
			id := s.enqueue(copying.New(struct{}{}))
			_, err := s.client.Wait(t.Context(), id)
			require.NoError(t, err)
			require.Nil(t, s.record(id).Attempts[0].Log)
			require.Contains(t, s.log.String(), "msg=hello")
		})
	})
	t.Run("what the framework logs is not kept", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			_, record := s.perform(func(context.Context, *durable.Run[struct{}]) error { panic("no") }, durable.MaxAttempts(1))
			require.Nil(t, record.Attempts[0].Log)
		})
	})
}

// silentStore answers no report, as behind a network that swallows everything.
type silentStore struct {
	durable.Store
	reports atomic.Int64
}

func (s *silentStore) Report(ctx context.Context, _ store.Holder, _ store.Report) error {
	s.reports.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

func TestProgress_BehindASilentNetwork(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, run *durable.Run[struct{}]) error{
		"checkpoint obeys its context while a report is under way": func(ctx context.Context, run *durable.Run[struct{}]) error {
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := run.Checkpoint(ctx, 1)
			if took := time.Since(began); took > 200*time.Millisecond {
				return fmt.Errorf("it took %v", took)
			}
			return errUnless(err, context.DeadlineExceeded)
		},
		"progress is kept while a report is under way": func(ctx context.Context, run *durable.Run[struct{}]) error {
			began := time.Now()
			err := run.Progress(ctx, 0.3, "")
			if took := time.Since(began); took > 0 {
				return fmt.Errorf("it took %v", took)
			}
			return err
		},
		"the loss of the lease ends a checkpoint, whatever its context": func(ctx context.Context, run *durable.Run[struct{}]) error {
			_ = run.Checkpoint(context.WithoutCancel(ctx), 1)
			for ctx.Err() == nil { // calls are given up before the lease is
				_ = run.Checkpoint(context.WithoutCancel(ctx), 1)
			}
			if run.Valid(ctx) || !errors.Is(context.Cause(ctx), lease.ErrLost) {
				return errBoom
			}
			return errUnless(run.Checkpoint(context.WithoutCancel(ctx), 1), lease.ErrLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *scene) {
				s.store.Store = &silentStore{Store: s.store.Store}
				w := s.worker(durable.WorkerConfig{})
				var said error
				done := false
				durable.Register(w, copying, func(ctx context.Context, run *durable.Run[struct{}]) error {
					first, cancel := context.WithTimeout(ctx, time.Millisecond)
					defer cancel()
					_ = run.Progress(first, 0.1, "")
					_ = run.Progress(ctx, 0.2, "")
					<-time.After(1500 * time.Millisecond) // by now it is being sent by itself
					s.store.cutBefore("Renew", -1)
					said = call(ctx, run)
					done = true
					return nil
				})
				stop := s.begin(w)
				s.enqueue(copying.New(struct{}{}))
				s.pass(29 * time.Second) // the local deadline is before the lease's end
				require.True(t, done)
				require.NoError(t, said)
				s.store.up()
				require.NoError(t, stop())
			})
		})
	}
}

func errUnless(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("%w, want %w", err, want)
}

func TestProgress_CheckpointInADrainLeavesTimeToReturn(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.store.Store = &silentStore{Store: s.store.Store}
		w := s.worker(durable.WorkerConfig{DrainTimeout: time.Second, CancelGrace: 4 * time.Second})
		durable.Register(w, copying, func(ctx context.Context, run *durable.Run[struct{}]) error {
			<-ctx.Done()
			return errors.Join(run.Checkpoint(ctx, 1), ctx.Err())
		})
		stop := s.begin(w)
		id := s.enqueue(copying.New(struct{}{}))
		s.pass(time.Second)
		require.NoError(t, stop(), "the handler is not stuck")
		require.Equal(t, durable.Pending, s.record(id).State)
	})
}

// A handler that checkpoints as the documentation shows lives through an outage that
// is shorter than its lease.
func TestProgress_ACheckpointRidesOutAnOutage(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{})
		durable.Register(w, copying, func(ctx context.Context, run *durable.Run[struct{}]) error {
			s.store.down()
			s.store.cutBefore("Report", -1)
			s.store.cutBefore("Checkpoint", -1)
			return run.Checkpoint(ctx, 7)
		})
		stop := s.begin(w)
		id := s.enqueue(copying.New(struct{}{}))
		s.pass(20 * time.Second)
		s.store.up()
		s.pass(5 * time.Second)
		record := s.record(id)
		require.Equal(t, durable.Succeeded, record.State)
		require.Equal(t, 1, record.Attempt)
		require.JSONEq(t, `7`, string(record.Checkpoint))
		require.Equal(t, 1, strings.Count(s.log.String(), "storing a checkpoint failed, will be retried"))
		require.NoError(t, stop())
	})
}

func TestProgress_ACheckpointEndsWithTheLease(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{})
		var said error
		durable.Register(w, copying, func(ctx context.Context, run *durable.Run[struct{}]) error {
			s.store.cutBefore("Renew", -1)
			s.store.cutBefore("Report", -1)
			s.store.cutBefore("Checkpoint", -1)
			said = run.Checkpoint(ctx, 7)
			return nil
		})
		stop := s.begin(w)
		s.enqueue(copying.New(struct{}{}))
		s.pass(31 * time.Second)
		require.ErrorIs(t, said, lease.ErrLost)
		s.store.up()
		require.NoError(t, stop())
	})
}

// A store that refuses the value although it answers is no outage.
func TestProgress_ACheckpointThatIsRefusedIsAnErrorSoon(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		w := s.worker(durable.WorkerConfig{})
		var took time.Duration
		durable.Register(w, copying, func(ctx context.Context, run *durable.Run[struct{}]) error {
			began := time.Now()
			s.store.cutBefore("Report", -1)
			err := run.Checkpoint(ctx, 7)
			took = time.Since(began)
			return durable.Permanent(err)
		})
		stop := s.begin(w)
		id := s.enqueue(copying.New(struct{}{}))
		s.pass(10 * time.Second)
		require.Equal(t, durable.Dead, s.record(id).State)
		require.Less(t, took, time.Second)
		require.NoError(t, stop())
	})
}
