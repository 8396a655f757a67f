package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

var sum = durable.NewJob[[]int]("sum")

func add(_ context.Context, run *durable.Run[[]int]) error {
	total := 0
	for _, n := range run.Args {
		total += n
	}
	if total < 0 {
		return durable.Permanent(errBoom)
	}
	if total == 0 {
		return nil
	}
	return run.SetResult(total)
}

// listening counts the listeners and the reads of a store, and can cut it off.
type listening struct {
	durable.Store
	listeners, most, reads atomic.Int64
	deaf                   atomic.Bool // nothing is heard, and Listen fails
	blind                  atomic.Bool // reads fail
}

func (s *listening) Listen(ctx context.Context, hear func(store.Signal)) error {
	s.most.Store(max(s.most.Load(), s.listeners.Add(1)))
	defer s.listeners.Add(-1)
	if s.deaf.Load() {
		return errCut
	}
	return s.Store.Listen(ctx, hear)
}

func (s *listening) Runs(ctx context.Context, filter durable.Filter) (durable.Page, error) {
	s.reads.Add(1)
	if s.blind.Load() {
		return durable.Page{}, errCut
	}
	return s.Store.Runs(ctx, filter)
}

// ended stops a worker that was begun.
func (s *scene) ended(stop func() error) {
	s.t.Helper()
	require.NoError(s.t, stop())
}

// awaiting is a client beside the worker's store, in virtual time.
func (s *scene) awaiting() (*listening, *durable.Client) {
	store := &listening{Store: s.store}
	return store, durable.NewClient(store)
}

func TestResult(t *testing.T) {
	t.Run("the result comes when the run has ended, and immediately when it had", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			store, client := s.awaiting()
			w := s.worker(durable.WorkerConfig{})
			durable.Register(w, sum, add)
			defer s.ended(s.begin(w))
			id := s.enqueue(sum.New([]int{1, 2, 3}, durable.After(time.Hour)))
			began := time.Now()
			total, err := durable.Result[int](t.Context(), client, id)
			require.NoError(t, err)
			require.Equal(t, 6, total)
			require.Less(t, time.Since(began), time.Hour+100*time.Millisecond)
			total, err = durable.Result[int](t.Context(), client, id)
			require.NoError(t, err)
			require.Equal(t, 6, total)
			require.Zero(t, store.listeners.Load(), "no one waits, no one listens")
		})
	})
	t.Run("every end has its answer", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			_, client := s.awaiting()
			w := s.worker(durable.WorkerConfig{})
			durable.Register(w, sum, add)
			defer s.ended(s.begin(w))
			zero, err := durable.Result[int](t.Context(), client, s.enqueue(sum.New(nil)))
			require.NoError(t, err)
			require.Zero(t, zero)
			_, err = durable.Result[string](t.Context(), client, s.enqueue(sum.New([]int{1})))
			require.ErrorContains(t, err, "decode result of run")
			dead := s.enqueue(sum.New([]int{-1}))
			_, err = durable.Result[int](t.Context(), client, dead)
			var ended *durable.EndedError
			require.ErrorAs(t, err, &ended)
			require.Equal(t, durable.EndedError{ID: dead, State: durable.Dead, Reason: "boom"}, *ended)
			_, err = durable.Result[int](t.Context(), client, durable.NewRunID())
			require.ErrorIs(t, err, durable.ErrNotFound)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = durable.Result[int](ctx, client, s.enqueue(sum.New(nil, durable.After(time.Hour))))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			none, err := client.Wait(t.Context())
			require.NoError(t, err)
			require.Empty(t, none)
		})
	})
}

func TestWait(t *testing.T) {
	t.Run("a thousand waiters share one listener and look together", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			store, client := s.awaiting()
			w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 1000})
			durable.Register(w, sum, add)
			defer s.ended(s.begin(w))
			var waiting sync.WaitGroup
			late := make(chan time.Duration, 1000)
			began := time.Now()
			for i := range 1000 {
				due := time.Minute + time.Duration(i)*time.Millisecond
				id := s.enqueue(sum.New([]int{i + 1}, durable.After(due)))
				waiting.Go(func() {
					total, err := durable.Result[int](t.Context(), client, id)
					if err != nil || total != i+1 {
						t.Errorf("run %d: %d, %v", i, total, err)
					}
					late <- time.Since(began) - due
				})
			}
			s.pass(59 * time.Second)
			most, reads := store.most.Load(), store.reads.Load()
			waiting.Wait()
			require.EqualValues(t, 1, most)
			require.LessOrEqual(t, reads, int64(5*40), "a thousand runs, two hundred at a time, every two seconds")
			close(late)
			for d := range late {
				require.Less(t, d, 100*time.Millisecond, "woken, not by chance")
			}
			require.Zero(t, store.listeners.Load())
		})
	})
	t.Run("several runs are returned in the order asked for, one of them twice", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			_, client := s.awaiting()
			w := s.worker(durable.WorkerConfig{})
			durable.Register(w, sum, add)
			defer s.ended(s.begin(w))
			one, two := s.enqueue(sum.New([]int{1}, durable.After(time.Minute))), s.enqueue(sum.New([]int{-2}))
			records, err := client.Wait(t.Context(), one, two, one)
			require.NoError(t, err)
			require.Len(t, records, 3)
			require.Equal(t, []durable.RunID{one, two, one}, []durable.RunID{records[0].ID, records[1].ID, records[2].ID})
			require.Equal(t, durable.Dead, records[1].State)
			require.Error(t, records[1].Ended())
			require.NoError(t, records[0].Ended())
		})
	})
	t.Run("without any signal it looks, at the latest every two seconds", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			store, client := s.awaiting()
			store.deaf.Store(true)
			w := s.worker(durable.WorkerConfig{})
			durable.Register(w, sum, add)
			defer s.ended(s.begin(w))
			for due, most := range map[time.Duration]time.Duration{200 * time.Millisecond: 250 * time.Millisecond, time.Minute: 2100 * time.Millisecond} {
				id := s.enqueue(sum.New([]int{1}, durable.After(due)))
				began := time.Now()
				_, err := client.Wait(t.Context(), id)
				require.NoError(t, err)
				require.Less(t, time.Since(began)-due, most)
			}
		})
	})
	t.Run("a worker that does not listen ends runs unheard, and they are found", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			_, client := s.awaiting()
			w := s.worker(durable.WorkerConfig{NoListen: true, PollInterval: 100 * time.Millisecond})
			durable.Register(w, sum, add)
			defer s.ended(s.begin(w))
			id := s.enqueue(sum.New([]int{1}, durable.After(time.Minute)))
			began := time.Now()
			_, err := client.Wait(t.Context(), id)
			require.NoError(t, err)
			require.Less(t, time.Since(began), time.Minute+2200*time.Millisecond)
		})
	})
	t.Run("a store that cannot be read is asked again for about a minute", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			store, client := s.awaiting()
			store.blind.Store(true)
			id := s.enqueue(sum.New(nil))
			began := time.Now()
			_, err := client.Wait(t.Context(), id)
			require.ErrorIs(t, err, errCut)
			require.Greater(t, time.Since(began), 50*time.Second)
			require.Less(t, time.Since(began), 90*time.Second)
			time.AfterFunc(20*time.Second, func() { store.blind.Store(false) })
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err = client.Wait(ctx, id)
			require.ErrorIs(t, err, context.DeadlineExceeded, "it was read again: pending")
		})
	})
	t.Run("a run that ends by a crash is announced by who reclaims it", func(t *testing.T) {
		play(t, func(t *testing.T, s *scene) {
			_, client := s.awaiting()
			w := s.worker(durable.WorkerConfig{})
			durable.Register(w, sum, add)
			defer s.ended(s.begin(w))
			run := sum.New(nil, durable.OnCrash(durable.CrashDead), durable.OnQueue("elsewhere"))
			id := s.enqueue(run)
			claimElsewhere(t, s.store, 30*time.Second)
			began := time.Now()
			records, err := client.Wait(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, durable.Dead, records[0].State)
			require.WithinDuration(t, *records[0].FinishedAt, time.Now(), 50*time.Millisecond)
			require.Less(t, time.Since(began), 40*time.Second)
		})
	})
}

// claimElsewhere takes what waits on the queue elsewhere and dies.
func claimElsewhere(t *testing.T, db durable.Store, d time.Duration) {
	t.Helper()
	heads, err := db.Heads(t.Context(), store.Serves{Queues: []string{"elsewhere"}, Jobs: []string{"sum"}})
	require.NoError(t, err)
	claimed, err := db.Claim(t.Context(), store.ClaimRequest{
		Claim: [16]byte{1}, Worker: store.WorkerID{Name: "gone"}, Duration: d, Limit: 1, Steps: []store.Step{{Lane: heads[0].Lane, Take: 1}},
	})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
}

func ExampleResult() {
	ctx, cancel := context.WithCancel(context.Background())
	store := memory.New(memory.Config{})
	client := durable.NewClient(store)
	w := durable.NewWorker(store, durable.WorkerConfig{})
	durable.Register(w, sum, func(_ context.Context, run *durable.Run[[]int]) error {
		total := 0
		for _, n := range run.Args {
			total += n
		}
		return run.SetResult(total)
	})
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()

	receipt, _ := sum.Enqueue(ctx, client, []int{1, 2, 3})
	total, err := durable.Result[int](ctx, client, receipt.ID) // in this process or in any other
	fmt.Println(total, err)

	cancel()
	fmt.Println(<-ended)
	// Output:
	// 6 <nil>
	// <nil>
}

func ExampleRun_Checkpoint() {
	store := memory.New(memory.Config{})
	client := durable.NewClient(store)
	copying := durable.NewJob[struct{}]("copy", durable.Retry(durable.Fixed(0)))
	w := durable.NewWorker(store, durable.WorkerConfig{})
	durable.Register(w, copying, func(ctx context.Context, run *durable.Run[struct{}]) error {
		page := 0
		if _, err := run.LastCheckpoint(ctx, &page); err != nil {
			return err
		}
		for ; page < 4; page++ {
			fmt.Println("attempt", run.Attempt, "page", page)
			if err := run.Checkpoint(ctx, page+1); err != nil {
				return err // another worker may have the run
			}
			if page == 1 && run.Attempt == 1 {
				return errors.New("the connection broke")
			}
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	receipt, _ := copying.Enqueue(ctx, client, struct{}{})
	records, _ := client.Wait(ctx, receipt.ID)
	fmt.Println(records[0].State)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// attempt 1 page 0
	// attempt 1 page 1
	// attempt 2 page 2
	// attempt 2 page 3
	// succeeded
	// <nil>
}

func TestReturning(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		_, client := s.awaiting()
		w := s.worker(durable.WorkerConfig{})
		total := durable.Returning[int](durable.NewJob[[]int]("total", durable.MaxAttempts(1), durable.WithCodec(newSealing())))
		durable.RegisterReturning(w, total, func(_ context.Context, run *durable.Run[[]int]) (int, error) {
			if len(run.Args) == 0 {
				return 7, errBoom
			}
			return run.Args[0] + 1, nil
		})
		other := durable.NewJob[[]int]("other")
		durable.Register(w, other, func(context.Context, *durable.Run[[]int]) error { return nil })
		defer s.ended(s.begin(w))

		id := s.enqueue(total.New([]int{41}, durable.After(time.Hour)))
		result, ended, err := total.Poll(t.Context(), client, id)
		require.NoError(t, err)
		require.False(t, ended)
		require.Zero(t, result)
		result, err = total.Await(t.Context(), client, id)
		require.NoError(t, err)
		require.Equal(t, 42, result)
		result, ended, err = total.Poll(t.Context(), client, id)
		require.NoError(t, err)
		require.True(t, ended)
		require.Equal(t, 42, result)

		dead := s.enqueue(total.New(nil))
		_, err = total.Await(t.Context(), client, dead)
		var reason *durable.EndedError
		require.ErrorAs(t, err, &reason)
		require.Empty(t, s.record(dead).Result)
		_, err = total.Await(t.Context(), client, s.enqueue(other.New(nil)))
		require.ErrorIs(t, err, durable.ErrInvalid, "a run without a result, of another job")
		_, _, err = total.Poll(t.Context(), client, durable.NewRunID())
		require.ErrorIs(t, err, durable.ErrNotFound)

		missing := s.worker(durable.WorkerConfig{})
		durable.RegisterReturning(missing, total, nil)
		require.ErrorContains(t, missing.Faults(), "no handler")
	})
}
