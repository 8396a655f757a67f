package durable_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// evaluationsStore counts the looks at the schedules.
type evaluationsStore struct {
	durable.Store
	looks atomic.Int32
}

func (s *evaluationsStore) Materialize(
	ctx context.Context, limit int, decide func(time.Time, store.Schedule) store.Decision,
) (store.MaterializeResult, error) {
	s.looks.Add(1)
	return s.Store.Materialize(ctx, limit, decide)
}

func TestSchedule_IdleWorkerEvaluatesSeldomAndIsNotifiedOfChanges(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		counted := &evaluationsStore{Store: s.store.Store}
		s.store.Store = counted
		w := s.worker(durable.WorkerConfig{})
		var fired, most atomic.Int32
		job := tick(w, 0, &fired, &most)
		stop := s.begin(w)
		s.pass(5 * time.Minute)
		require.InDelta(t, 15, counted.looks.Load(), 5, "looks in 5 minutes, at four poll intervals of 5 s")

		for before := counted.looks.Load(); counted.looks.Load() == before; {
			s.pass(100 * time.Millisecond)
		}
		s.pass(7 * time.Second) // a poll interval and its jitter
		// The next occurrence of the schedule is then not a reason for the look.
		s.pass(time.Until(time.Now().Truncate(2 * time.Second).Add(2500 * time.Millisecond)))
		before := counted.looks.Load()
		one, err := durable.ScheduleOf(durable.JobInfo{Name: job.Name(), Queue: durable.DefaultQueue, MaxAttempts: 3},
			"new", []byte("{}"), durable.Every(2*time.Second))
		require.NoError(t, err)
		require.NoError(t, counted.SaveSchedule(t.Context(), one, "ann"))
		s.pass(100 * time.Millisecond)
		require.Equal(t, before+1, counted.looks.Load(), "looks after a schedule was saved")
		s.pass(5 * time.Second)
		require.GreaterOrEqual(t, fired.Load(), int32(1))
		require.NoError(t, stop())
	})
}

func TestSchedule_WithoutNotificationsAWorkerEvaluatesAtEveryPoll(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		counted := &evaluationsStore{Store: s.store.Store}
		s.store.Store = counted
		w := s.worker(durable.WorkerConfig{NoListen: true})
		var fired, most atomic.Int32
		tick(w, 0, &fired, &most)
		stop := s.begin(w)
		s.pass(5 * time.Minute)
		require.InDelta(t, 60, counted.looks.Load(), 8)
		require.NoError(t, stop())
	})
}

// crowdedStore has many schedules due; evaluating a chunk takes it 10 ms.
type crowdedStore struct {
	durable.Store
	one  bool // lets one caller evaluate at a time
	next time.Duration

	mu sync.Mutex
	crowd
}

type crowd struct {
	left       int  // schedules that are due
	at, most   int  // callers that evaluate, and the most there were
	busy       int  // callers that were turned away
	yields     bool // the next caller comes too late, where one evaluates
	afterwards int  // calls that found nothing due
}

func (s *crowdedStore) seen() crowd {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.crowd
}

func (s *crowdedStore) Materialize(
	ctx context.Context, limit int, _ func(time.Time, store.Schedule) store.Decision,
) (store.MaterializeResult, error) {
	s.mu.Lock()
	if s.one && s.yields {
		s.yields = false
		s.mu.Unlock()
		<-time.After(time.Millisecond)
		s.mu.Lock()
	}
	if s.one && s.at > 0 {
		s.busy++
		s.mu.Unlock()
		return store.MaterializeResult{Busy: true}, nil
	}
	due := min(limit, s.left)
	s.left -= due
	s.at++
	s.most = max(s.most, s.at)
	if due == 0 {
		s.afterwards++
	}
	s.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at--
	s.yields = due == limit
	return store.MaterializeResult{Due: due, Next: s.next}, ctx.Err()
}

func TestSchedule_TwoEvaluateWhileMoreAreDueThanOneTransactionTakes(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		crowded := &crowdedStore{Store: s.store.Store, crowd: crowd{left: 5_000}, next: -1}
		s.store.Store = crowded
		w := s.worker(durable.WorkerConfig{})
		var fired, highest atomic.Int32
		tick(w, 0, &fired, &highest)
		stop := s.begin(w)
		s.pass(70 * time.Millisecond)
		require.Zero(t, crowded.seen().left, "in 10 transactions of 500, two at a time")
		require.Equal(t, 2, crowded.seen().most)
		s.pass(time.Minute)
		require.Equal(t, 2, crowded.seen().most)
		require.NoError(t, stop())
	})
}

// Where one evaluates at a time, the loop goes on as soon as its second has
// ended: what is due next is not left to the next poll.
func TestSchedule_NoneIsLateForASecondEvaluator(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		crowded := &crowdedStore{Store: s.store.Store, one: true, crowd: crowd{left: 5_000}, next: time.Second}
		s.store.Store = crowded
		w := s.worker(durable.WorkerConfig{PollInterval: time.Minute})
		var fired, highest atomic.Int32
		tick(w, 0, &fired, &highest)
		stop := s.begin(w)
		s.pass(200 * time.Millisecond)
		require.Zero(t, crowded.seen().left)
		require.NotZero(t, crowded.seen().busy)
		before := crowded.seen().afterwards
		s.pass(10 * time.Second)
		require.GreaterOrEqual(t, crowded.seen().afterwards-before, 9, "looks in 10 s, with something due each second")
		require.NoError(t, stop())
	})
}

// feebleStore has no time for more than some schedules in one call.
type feebleStore struct{ *crowdedStore }

func (s *feebleStore) Materialize(
	ctx context.Context, limit int, decide func(time.Time, store.Schedule) store.Decision,
) (store.MaterializeResult, error) {
	if limit > 40 {
		<-ctx.Done()
		return store.MaterializeResult{}, ctx.Err()
	}
	return s.crowdedStore.Materialize(ctx, limit, decide)
}

func TestSchedule_FewerAreTakenWhereACallHasNoTimeForMore(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		crowded := &crowdedStore{Store: s.store.Store, crowd: crowd{left: 100}, next: -1}
		s.store.Store = &feebleStore{crowded}
		w := s.worker(durable.WorkerConfig{})
		var fired, highest atomic.Int32
		tick(w, 0, &fired, &highest)
		stop := s.begin(w)
		s.pass(5 * time.Minute)
		require.Zero(t, crowded.seen().left)
		require.NoError(t, stop())
	})
}
