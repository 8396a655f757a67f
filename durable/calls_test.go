package durable_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// callStore is a store whose worker hears only what a test says to it.
type callStore struct {
	*faultyStore

	mu        sync.Mutex
	hear      func(store.Signal)
	heads     int
	claims    []store.ClaimRequest
	announced []store.Signal
}

func (s *callStore) ListenFor(ctx context.Context, _ store.Serves, hear func(store.Signal)) error {
	s.mu.Lock()
	s.hear = hear
	s.mu.Unlock()
	hear(store.Signal{Kind: store.RunEnded})
	<-ctx.Done()
	return nil
}

func (s *callStore) Publish(_ context.Context, signal store.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced = append(s.announced, signal)
	return nil
}

func (s *callStore) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	s.mu.Lock()
	s.heads++
	s.mu.Unlock()
	return s.faultyStore.Heads(ctx, serves)
}

func (s *callStore) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	s.mu.Lock()
	s.claims = append(s.claims, request)
	s.mu.Unlock()
	return s.faultyStore.Claim(ctx, request)
}

// asked are the claims since forget.
func (s *callStore) asked() []store.ClaimRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.claims)
}

// published are the signals since forget.
func (s *callStore) published() []store.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.announced)
}

// read is how often the heads were read since forget.
func (s *callStore) read() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heads
}

// forget begins the counts again.
func (s *callStore) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads, s.claims, s.announced = 0, nil, nil
}

// calling is a worker of two jobs that polls each minute, and the lane of each.
type calling struct {
	*scene

	store *callStore
	jobs  [2]durable.Job[letter]
	lanes [2]store.LaneID
	stop  func() error
}

func playCalls(t *testing.T, config durable.WorkerConfig, handle func(context.Context) error, script func(t *testing.T, c *calling)) {
	t.Helper()
	play(t, func(t *testing.T, s *scene) {
		c := &calling{scene: s, store: &callStore{faultyStore: s.store}}
		began := time.Now()
		config.Elapsed, config.Process, config.PollInterval, config.PollJitter = func() time.Duration { return time.Since(began) }, new(durable.Process), time.Minute, -1
		w := durable.NewWorker(c.store, config)
		for i, name := range []string{"a", "b"} {
			c.jobs[i] = durable.NewJob[letter](name)
			durable.Register(w, c.jobs[i], func(ctx context.Context, _ *durable.Run[letter]) error { return handle(ctx) })
			s.enqueue(c.jobs[i].New(letter{}, durable.After(time.Millisecond))) // so that there is a lane
		}
		c.stop = s.begin(w)
		s.pass(90 * time.Second)
		heads, err := s.store.Heads(t.Context(), store.Serves{Queues: []string{durable.DefaultQueue}, Jobs: []string{"a", "b"}})
		require.NoError(t, err)
		for _, h := range heads {
			require.False(t, h.Waiting)
			c.lanes[h.Job[0]-'a'] = h.Lane
		}
		c.store.forget()
		script(t, c)
		require.NoError(t, c.stop())
	})
}

// call wakes the worker about the first job, unless due says otherwise.
func (c *calling) call(due store.Due) {
	if due.Lane == 0 {
		due.Lane = c.lanes[0]
	}
	c.store.hear(store.Signal{Kind: store.RunsDue, Due: due})
}

func ready(context.Context) error { return nil }

func TestCall_ClaimsFromTheLaneThatIsNamedAndRests(t *testing.T) {
	playCalls(t, durable.WorkerConfig{}, ready, func(t *testing.T, c *calling) {
		one := c.enqueue(c.jobs[0].New(letter{}))
		c.call(store.Due{Runs: 1})
		c.pass(time.Millisecond)
		require.Equal(t, durable.Succeeded, c.record(one).State)
		require.Len(t, c.store.asked(), 1)
		require.Len(t, c.store.asked()[0].Steps, 1)
		require.Equal(t, c.lanes[0], c.store.asked()[0].Steps[0].Lane)
		require.True(t, c.store.asked()[0].Guess)
		require.Zero(t, c.store.read(), "it takes no look")
		c.call(store.Due{Runs: 1})
		c.pass(time.Second)
		require.Len(t, c.store.asked(), 2, "in vain, and that is the end of it")
		require.Zero(t, c.store.read())
	})
}

func TestCall_HoweverManyComeTheHeadsAreReadEachPoll(t *testing.T) {
	playCalls(t, durable.WorkerConfig{}, ready, func(t *testing.T, c *calling) {
		lost := c.enqueue(c.jobs[1].New(letter{})) // no worker gets a wake-up for it
		for range 61 * 20 {
			c.enqueue(c.jobs[0].New(letter{}))
			c.call(store.Due{Runs: 1})
			c.pass(50 * time.Millisecond)
		}
		require.Equal(t, durable.Succeeded, c.record(lost).State)
	})
}

func TestCall_OfALaneThatIsNewIsFound(t *testing.T) {
	playCalls(t, durable.WorkerConfig{}, ready, func(t *testing.T, c *calling) {
		one := c.enqueue(c.jobs[0].New(letter{}, durable.Priority(2)))
		c.call(store.Due{Lane: 1000, Runs: 1})
		c.pass(time.Millisecond)
		require.Equal(t, durable.Succeeded, c.record(one).State)
	})
}

func TestCall_AStandInLooksLater(t *testing.T) {
	playCalls(t, durable.WorkerConfig{}, ready, func(t *testing.T, c *calling) {
		one := c.enqueue(c.jobs[0].New(letter{}))
		c.call(store.Due{Runs: 1, After: 10 * time.Millisecond})
		c.pass(9 * time.Millisecond)
		require.Empty(t, c.store.asked())
		c.pass(2 * time.Millisecond)
		require.Equal(t, durable.Succeeded, c.record(one).State)
		c.store.forget()
		c.call(store.Due{Runs: 1, After: 10 * time.Millisecond})
		c.call(store.Due{Runs: 1})
		c.pass(time.Second)
		require.Len(t, c.store.asked(), 1, "it has looked in between")
	})
}

func TestCall_AWorkerWithoutRoomPassesItOn(t *testing.T) {
	var holds atomic.Bool
	hold := func(context.Context) error {
		for holds.Load() {
			time.Sleep(time.Millisecond) //nolint:forbidigo // virtual time: the handler works
		}
		return nil
	}
	playCalls(t, durable.WorkerConfig{MaxConcurrentRuns: 1}, hold, func(t *testing.T, c *calling) {
		c.call(store.Due{Runs: 1, Draw: 7})
		c.pass(time.Millisecond)
		require.Empty(t, c.store.published(), "there is room")
		holds.Store(true)
		c.enqueue(c.jobs[0].New(letter{}))
		c.call(store.Due{Runs: 1, Draw: 7})
		c.pass(time.Millisecond)
		c.store.forget()
		left := c.enqueue(c.jobs[0].New(letter{}))
		c.call(store.Due{Runs: 1, Draw: 8, Passed: 1})
		c.call(store.Due{Runs: 1, Draw: 9, After: time.Millisecond})
		c.pass(20 * time.Millisecond)
		require.Equal(t, []store.Signal{{Kind: store.RunsDue, Due: store.Due{Lane: c.lanes[0], Runs: 1, Draw: 8, Passed: 2}}}, c.store.published())
		holds.Store(false)
		c.pass(20 * time.Millisecond)
		require.Equal(t, durable.Succeeded, c.record(left).State, "it looks all the same when a slot is free")
	})
}

func TestCall_MoreThanThereIsRoomForIsShared(t *testing.T) {
	takes := func(ctx context.Context) error {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		return nil
	}
	playCalls(t, durable.WorkerConfig{MaxConcurrentRuns: 2}, takes, func(t *testing.T, c *calling) {
		for range 5 {
			c.enqueue(c.jobs[0].New(letter{}))
		}
		c.call(store.Due{Names: 77, Runs: 5, Draw: 3})
		c.pass(10 * time.Millisecond)
		require.Len(t, c.store.published(), 1)
		due := c.store.published()[0].Due
		require.Equal(t, c.lanes[0], due.Lane)
		require.Equal(t, uint64(77), due.Names)
		require.Zero(t, due.Draw, "others have their turn")
		require.Greater(t, due.Wanted(10), 1)
		c.pass(10 * time.Second)
		counts, err := c.store.Counts(t.Context())
		require.NoError(t, err)
		require.Equal(t, 7, int(counts[durable.Succeeded].N), "whichever worker takes them, it continues by itself")
	})
}

func TestCall_AFullWorkerHandsItsWatchOver(t *testing.T) {
	playCalls(t, durable.WorkerConfig{MaxConcurrentRuns: 2}, func(context.Context) error { <-time.After(time.Second); return nil }, func(t *testing.T, c *calling) {
		c.pass(10 * time.Second)
		for range 3 {
			c.enqueue(c.jobs[0].New(letter{}))
		}
		c.store.forget()
		c.call(store.Due{Runs: 1, Every: 6 * time.Millisecond, For: 500 * time.Millisecond})
		c.pass(100 * time.Millisecond)
		require.Len(t, c.store.published(), 1)
		due := c.store.published()[0].Due
		require.Equal(t, store.HandOver, due.For)
		require.Equal(t, 6*time.Millisecond, due.Every)
		c.pass(10 * time.Second)
	})
}

func TestCall_AWatchAsksAgainForAWhile(t *testing.T) {
	playCalls(t, durable.WorkerConfig{}, ready, func(t *testing.T, c *calling) {
		c.call(store.Due{Runs: 1, Every: 6 * time.Millisecond, For: 50 * time.Millisecond})
		c.pass(25 * time.Millisecond)
		one := c.enqueue(c.jobs[0].New(letter{})) // no worker gets a wake-up for it
		c.pass(30 * time.Millisecond)
		require.Equal(t, durable.Succeeded, c.record(one).State)
		c.pass(100 * time.Millisecond)
		require.Zero(t, c.store.read())
		looks := len(c.store.asked())
		require.LessOrEqual(t, looks, 10)
		c.pass(5 * time.Second)
		require.Len(t, c.store.asked(), looks, "it has ended")
	})
}

// A process that enqueues often announces nothing more for as long as the worker watches.
func TestCall_AWatchGoesOnAfterLimitedRuns(t *testing.T) {
	playCalls(t, durable.WorkerConfig{}, ready, func(t *testing.T, c *calling) {
		require.NoError(t, c.store.ChangeLimit(t.Context(), store.LimitChange{Command: store.SetLimit, By: "ann",
			Limit: store.Limit{Name: "many", Kind: store.LimitSemaphore, Max: 10}}))
		limited := func() durable.RunID {
			run := c.jobs[0].New(letter{})
			run.Limits = []store.LimitUse{{Limit: "many"}}
			return c.enqueue(run)
		}
		one := limited()
		c.call(store.Due{Runs: 1, Limited: true, Every: 6 * time.Millisecond, For: 100 * time.Millisecond})
		c.pass(time.Millisecond)
		require.Equal(t, durable.Succeeded, c.record(one).State)
		for range 3 {
			c.pass(20 * time.Millisecond)
			one = limited() // no worker gets a wake-up for it
			c.pass(7 * time.Millisecond)
			require.Equal(t, durable.Succeeded, c.record(one).State)
		}
		c.pass(100 * time.Millisecond)
		c.store.forget()
		c.pass(5 * time.Second)
		require.Zero(t, c.store.read()+len(c.store.asked()), "it has ended")
	})
}

func TestCall_OfARunThatIsToBecomeDue(t *testing.T) {
	playCalls(t, durable.WorkerConfig{}, ready, func(t *testing.T, c *calling) {
		one := c.enqueue(c.jobs[0].New(letter{}, durable.After(2*time.Second)))
		c.call(store.Due{Runs: 1, In: 2 * time.Second})
		c.enqueue(c.jobs[1].New(letter{}))
		c.call(store.Due{Lane: c.lanes[1], Runs: 1})
		c.pass(time.Second)
		require.Equal(t, durable.Pending, c.record(one).State)
		c.pass(1100 * time.Millisecond)
		require.Equal(t, durable.Succeeded, c.record(one).State)
	})
}
