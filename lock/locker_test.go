package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/memory"
)

// scripted is a store of locks that fails or is slow as scripted, and counts.
type scripted struct {
	lock.Locks
	down  atomic.Bool
	lost  atomic.Bool  // requests for locks arrive, and nothing else does
	slow  atomic.Int64 // how long a call takes
	asked atomic.Int64

	refused string // the name of a lock that no call can change
}

var errDown = errors.New("connection refused")

func (s *scripted) Acquire(ctx context.Context, r lock.Request) (lock.Answer, error) {
	s.asked.Add(1)
	switch {
	case s.down.Load():
		return lock.Answer{}, errDown
	case r.Name == s.refused:
		return lock.Answer{}, lock.ErrRefused
	case s.lost.Load():
		_, _ = s.Locks.Acquire(ctx, r)
		return lock.Answer{}, errDown
	}
	if d := time.Duration(s.slow.Load()); d > 0 {
		// The request arrives, and the answer comes late.
		answer, err := s.Locks.Acquire(context.WithoutCancel(ctx), r)
		select {
		case <-ctx.Done():
			return lock.Answer{}, ctx.Err()
		case <-time.After(d):
			return answer, err
		}
	}
	return s.Locks.Acquire(ctx, r)
}

func (s *scripted) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	if slow := time.Duration(s.slow.Load()); slow > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(slow):
		}
	}
	return s.Locks.Renew(ctx, claims, d)
}

func (s *scripted) Release(ctx context.Context, name string, claim lease.ClaimID) (bool, error) {
	if s.down.Load() || s.lost.Load() {
		return false, errDown
	}
	return s.Locks.Release(ctx, name, claim)
}

// bench is one Locker on a scripted store, in virtual time.
type bench struct {
	*lock.Locker
	store    *scripted
	counters *lock.Counters
	log      *bytes.Buffer
	again    func() *lock.Locker // another process
}

func locker(t *testing.T, script func(t *testing.T, b bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := bench{store: &scripted{Locks: memory.New(memory.Config{}).Locks()}, counters: &lock.Counters{}, log: &bytes.Buffer{}}
		b.again = func() *lock.Locker {
			l := lock.NewLocker(b.store, lock.LockerConfig{
				Owner: "me", Hooks: b.counters.Hooks(), Elapsed: func() time.Duration { return time.Since(began) }, Random: func() float64 { return 0.5 },
				Logger: slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			})
			t.Cleanup(l.Close)
			return l
		}
		b.Locker = b.again()
		script(t, b)
	})
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time of the bubble
	synctest.Wait()
}

func TestLocker_WaitersAreServedInOrderAndWokenByRelease(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		held, err := b.TryAcquire(t.Context(), "nightly", lock.Terms{})
		require.NoError(t, err)
		var order []int
		var waiting sync.WaitGroup
		for i := range 20 {
			waiting.Go(func() {
				grant, err := b.Acquire(t.Context(), "nightly", lock.Terms{Wait: -1})
				require.NoError(t, err)
				order = append(order, i)
				require.NoError(t, b.Release(t.Context(), grant))
			})
			synctest.Wait()
		}
		require.Equal(t, map[string]int{"nightly": 20}, b.Waiting())
		_, err = b.TryAcquire(t.Context(), "nightly", lock.Terms{})
		require.ErrorIs(t, err, lock.ErrHeld, "a try does not overtake those who wait")
		began := time.Now()
		require.NoError(t, b.Release(t.Context(), held))
		waiting.Wait()
		require.Zero(t, time.Since(began), "woken, not found by polling")
		require.IsIncreasing(t, order)
		require.Empty(t, b.Waiting())
		require.EqualValues(t, 21, b.counters.Counts().Granted)
	})
}

func TestLocker_TryDoesNotOvertakeThoseWhoWait(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		other := b.again()
		held, err := other.TryAcquire(t.Context(), "nightly", lock.Terms{})
		require.NoError(t, err)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			_, err := b.Acquire(t.Context(), "nightly", lock.Terms{Wait: -1})
			require.NoError(t, err)
		})
		pass(10 * time.Second)
		require.NoError(t, other.Release(t.Context(), held)) // of which this process is not notified
		_, err = b.TryAcquire(t.Context(), "nightly", lock.Terms{})
		require.ErrorIs(t, err, lock.ErrHeld)
		waiting.Wait()
	})
}

func TestLocker_WaitingAsksLessAndLess(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		_, err := b.TryAcquire(t.Context(), "nightly", lock.Terms{Terms: lease.Terms{Duration: time.Hour}})
		require.NoError(t, err)
		var waiting sync.WaitGroup
		for range 200 {
			waiting.Go(func() {
				_, err := b.Acquire(t.Context(), "nightly", lock.Terms{Wait: time.Minute})
				require.ErrorIs(t, err, lock.ErrHeld)
			})
		}
		waiting.Wait()
		require.Less(t, b.store.asked.Load(), int64(400), "two hundred who wait a minute ask for all together, about once a second")
	})
}

func TestLocker_WaiterIsThereWhenACrashedHolderExpires(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		_, err := b.again().TryAcquire(t.Context(), "nightly", lock.Terms{})
		require.NoError(t, err)
		began := time.Now()
		grant, err := b.Acquire(t.Context(), "nightly", lock.Terms{Wait: -1})
		require.NoError(t, err)
		require.True(t, grant.TookOver)
		require.InDelta(t, 30, time.Since(began).Seconds(), 0.02)
		require.EqualValues(t, 1, b.counters.Counts().Expired)
	})
}

func TestLocker_CancelledWaiterGivesItsPlaceUp(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		held, err := b.TryAcquire(t.Context(), "nightly", lock.Terms{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() {
			_, err := b.Acquire(ctx, "nightly", lock.Terms{Wait: -1})
			require.ErrorIs(t, err, errDown)
		})
		synctest.Wait()
		waiting.Go(func() {
			_, err := b.Acquire(t.Context(), "nightly", lock.Terms{Wait: -1})
			require.NoError(t, err)
		})
		synctest.Wait()
		cancel(errDown)
		synctest.Wait()
		require.NoError(t, b.Release(t.Context(), held))
		waiting.Wait()
	})
}

func TestLocker_RefusalIsRememberedForASecondAndAGrantNever(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		other := b.again()
		terms := lock.Terms{Recheck: time.Second}
		held, err := other.TryAcquire(t.Context(), "tick", terms)
		require.NoError(t, err)
		for range 10 {
			_, err := b.TryAcquire(t.Context(), "tick", terms)
			require.ErrorIs(t, err, lock.ErrHeld)
		}
		require.EqualValues(t, 2, b.store.asked.Load(), "one question of each process")
		require.NoError(t, other.Release(t.Context(), held))
		pass(time.Second)
		for range 3 {
			grant, err := b.TryAcquire(t.Context(), "tick", terms)
			require.NoError(t, err)
			require.NoError(t, b.Release(t.Context(), grant))
		}
		require.EqualValues(t, 5, b.store.asked.Load(), "every grant was asked for")
		held, err = b.TryAcquire(t.Context(), "tick", terms)
		require.NoError(t, err)
		_, err = b.TryAcquire(t.Context(), "tick", terms)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.NoError(t, b.Release(t.Context(), held))
		_, err = b.TryAcquire(t.Context(), "tick", terms)
		require.NoError(t, err, "a release here ends the memory of the refusal")
	})
}

func TestLocker_PoliciesInAnOutage(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		b.store.down.Store(true)
		try := func(policy lock.Policy) (lock.Grant, error) {
			return b.TryAcquire(t.Context(), "tick", lock.Terms{Policy: policy, Slots: 2})
		}
		_, err := try(lock.Skip)
		require.ErrorIs(t, err, lock.ErrHeld)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		_, err = try(lock.Fail)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrHeld)
		first, err := try(lock.RunLocal)
		require.NoError(t, err)
		_, err = try(lock.RunLocal)
		require.NoError(t, err)
		_, err = try(lock.RunLocal)
		require.ErrorIs(t, err, lock.ErrHeld, "the local cap is two")
		require.NoError(t, b.Release(t.Context(), first))
		require.ErrorIs(t, b.Release(t.Context(), first), lease.ErrLost)
		require.EqualValues(t, 1, b.store.asked.Load(), "a store that is down is asked once a second at most")
		pass(10 * time.Second)
		_, err = try(lock.Skip)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		b.store.down.Store(false)
		pass(time.Second)
		grant, err := try(lock.Skip)
		require.NoError(t, err)
		require.False(t, grant.Local)
		counts := b.counters.Counts()
		require.EqualValues(t, 2, counts.GrantedHere)
		require.EqualValues(t, 1, counts.Granted)
		require.InDelta(t, 10.5, counts.Degraded.Seconds(), 0.5, "it notices by itself that the store is back")
		for _, line := range []string{
			"level=ERROR msg=\"lock store failed, falling back", "level=INFO msg=\"lock store is back\" event=lock.back after=10.",
			"level=WARN msg=\"lock granted locally", "level=INFO msg=\"lock acquired\" event=lock.granted lock=tick slot=0 owner=me",
		} {
			require.Contains(t, b.log.String(), line)
		}
	})
}

func TestLocker_LocalCapCountsGrantsOfTheStore(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		terms := lock.Terms{Policy: lock.RunLocal}
		_, err := b.TryAcquire(t.Context(), "tick", terms)
		require.NoError(t, err)
		b.store.down.Store(true)
		_, err = b.TryAcquire(t.Context(), "tick", terms)
		require.ErrorIs(t, err, lock.ErrHeld, "this process still holds it")
		pass(28 * time.Second)
		_, err = b.TryAcquire(t.Context(), "tick", terms)
		require.NoError(t, err, "its deadline has passed")
	})
}

func TestLocker_AnswerThatCameTooLateIsGivenBack(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		b.store.slow.Store(int64(time.Minute))
		_, err := b.TryAcquire(t.Context(), "tick", lock.Terms{})
		require.ErrorIs(t, err, lock.ErrUnavailable)
		b.store.slow.Store(0)
		pass(2 * time.Second)
		_, err = b.TryAcquire(t.Context(), "other", lock.Terms{})
		require.NoError(t, err, "the store is back")
		_, err = b.TryAcquire(t.Context(), "tick", lock.Terms{})
		require.NoError(t, err, "what was granted to no one has been given back")
	})
}

func TestLocker_LogsWhatAReaderSearchesFor(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		grant, err := b.TryAcquire(t.Context(), "nightly", lock.Terms{})
		require.NoError(t, err)
		_, err = b.TryAcquire(t.Context(), "nightly", lock.Terms{})
		require.ErrorIs(t, err, lock.ErrHeld)
		_, err = b.TryAcquire(t.Context(), "timer", lock.Terms{Slots: 2})
		require.NoError(t, err)
		for range 2 {
			_, _ = b.TryAcquire(t.Context(), "timer", lock.Terms{Slots: 2})
		}
		require.NoError(t, b.Release(t.Context(), grant))
		for _, line := range []string{
			"level=DEBUG msg=\"lock held by another, skipped\" event=lock.held lock=nightly",
			"level=WARN msg=\"global cap reached, skipped\" event=lock.full lock=timer max=2",
			"level=INFO msg=\"lock released\" event=lock.released lock=nightly slot=0 owner=me",
		} {
			require.Contains(t, b.log.String(), line)
		}
		require.NotContains(t, b.log.String(), fmt.Sprintf("%x", grant.Claim[:]), "a claim is a secret")
	})
}

func TestLocker_ProbesOfManyInstancesDoNotMeet(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		var probing sync.WaitGroup
		for range 20 {
			l := b.again()
			for range 3 {
				probing.Go(func() {
					health, err := l.Probe(t.Context())
					require.NoError(t, err)
					require.Equal(t, lock.Healthy, health)
				})
			}
		}
		probing.Wait()
		b.store.down.Store(true)
		health, err := b.Probe(t.Context())
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.Equal(t, lock.Unhealthy, health)
	})
}

func TestLocker_ExtendAndContext(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		grant, err := b.TryAcquire(t.Context(), "nightly", lock.Terms{})
		require.NoError(t, err)
		pass(20 * time.Second)
		grant, err = b.Extend(t.Context(), grant)
		require.NoError(t, err)
		pass(20 * time.Second)
		_, err = b.TryAcquire(t.Context(), "nightly", lock.Terms{})
		require.ErrorIs(t, err, lock.ErrHeld)
		_, err = b.store.ForceRelease(t.Context(), lock.Force{Name: "nightly", By: "ada"})
		require.NoError(t, err)
		_, err = b.Extend(t.Context(), grant)
		require.ErrorIs(t, err, lease.ErrLost)
		require.ErrorIs(t, b.Release(t.Context(), grant), lease.ErrLost)
	})
}

func TestGrant_ContextEndsBeforeTheStoreGrantsToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Config{}).Locks()
		l := lock.NewLocker(store, lock.LockerConfig{})
		grant, err := l.TryAcquire(t.Context(), "nightly", lock.Terms{})
		require.NoError(t, err)
		ctx, cancel := grant.Context(t.Context())
		defer cancel()
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
		answer, err := store.Acquire(t.Context(), lock.Request{Name: "nightly", Slots: 1, Claim: lease.NewClaimID(), Duration: time.Second})
		require.NoError(t, err)
		require.False(t, answer.Granted)
		require.Greater(t, answer.FreeIn, 2*time.Second)
	})
}

func TestLockTerms_Validate(t *testing.T) {
	t.Parallel()
	good := lock.Terms{Terms: lease.Terms{Duration: 10 * time.Minute, Heartbeat: 3 * time.Minute}, Timeout: 5 * time.Minute}.WithDefaults()
	require.NoError(t, good.Validate())
	require.Equal(t, 5*time.Minute, good.Longest)
	for name, change := range map[string]func(*lock.Terms){
		"heartbeat interval 6m0s is above half": func(t *lock.Terms) { t.Heartbeat = 6 * time.Minute },
		"timeout 10m0s":                         func(t *lock.Terms) { t.Timeout = 10 * time.Minute },
		"0 slots":                               func(t *lock.Terms) { t.Slots = 0 },
		"recheck 2s":                            func(t *lock.Terms) { t.Recheck = 2 * time.Second },
		"unknown policy 3":                      func(t *lock.Terms) { t.Policy = 3 },
	} {
		terms := good
		change(&terms)
		err := terms.Validate()
		require.ErrorIs(t, err, lock.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
	// Two tries fit before the deadline under every heartbeat that is allowed:
	// the first one fails slowly, and the second is sent as late as it may be.
	for _, d := range []time.Duration{time.Second, 2 * time.Second, 6 * time.Second, 30 * time.Second, 10 * time.Minute} {
		terms := lease.Terms{Duration: d, Heartbeat: d / 2}
		second := terms.Heartbeat + d/6 + d/8
		require.Less(t, second, terms.Deadline(0), d)
	}
	l := lock.NewLocker(memory.New(memory.Config{}).Locks(), lock.LockerConfig{})
	_, err := l.TryAcquire(t.Context(), strings.Repeat("x", 256), lock.Terms{})
	require.ErrorIs(t, err, lock.ErrInvalid)
}
