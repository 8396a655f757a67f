package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

// hasty gives up after a while.
func hasty(t *testing.T, after time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	t.Cleanup(cancel)
	return ctx
}

// granted reports whether another process is granted a lock.
func (b bench) granted(t *testing.T, name string) bool {
	t.Helper()
	answer, err := b.store.Locks.Acquire(t.Context(), lock.Request{Name: name, Slots: 1, Claim: lease.NewClaimID(), Duration: time.Hour})
	require.NoError(t, err)
	return answer.Granted
}

func TestLocker_ACallerThatGivesUpReturnsAndHoldsNothing(t *testing.T) {
	for _, wait := range []time.Duration{0, -1} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			locker(t, func(t *testing.T, b bench) {
				b.store.slow.Store(int64(time.Second))
				began := time.Now()
				_, err := b.Acquire(hasty(t, 100*time.Millisecond), "nightly", lock.Terms{Wait: wait})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, lock.ErrUnavailable)
				require.Equal(t, 100*time.Millisecond, time.Since(began))
				pass(time.Second)
				require.True(t, b.granted(t, "nightly"))
				require.Zero(t, b.Degraded())
				require.Zero(t, b.counters.Counts().Degraded)
			})
		})
	}
}

func TestLocker_WhatIsGivenBackGoesToWhoWaits(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		b.store.slow.Store(int64(time.Second))
		var waiting sync.WaitGroup
		waiting.Go(func() {
			_, err := b.TryAcquire(hasty(t, 500*time.Millisecond), "nightly", lock.Terms{Terms: lease.Terms{Duration: time.Hour}})
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		synctest.Wait()
		began := time.Now()
		grant, err := b.Acquire(t.Context(), "nightly", lock.Terms{Wait: -1})
		require.NoError(t, err)
		require.Less(t, time.Since(began), 5*time.Second)
		waiting.Wait()
		require.NoError(t, b.Release(t.Context(), grant))
	})
}

// A thousand callers that give up are many calls, and still no outage: those that have not been
// sent when their callers leave never are.
func TestLocker_AFloodOfCallersThatGiveUpIsNoOutage(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		b.store.slow.Store(int64(100 * time.Millisecond))
		var flood sync.WaitGroup
		for i := range 1000 {
			flood.Go(func() { _, _ = b.Acquire(hasty(t, 50*time.Millisecond), fmt.Sprint(i), lock.Terms{}) })
		}
		synctest.Wait()
		grant, err := b.Acquire(t.Context(), "patient", lock.Terms{Policy: lock.RunLocal})
		require.NoError(t, err)
		require.False(t, grant.Local)
		flood.Wait()
		require.Less(t, b.store.asked.Load(), int64(100))
		pass(time.Second)
		for i := range 1000 {
			require.True(t, b.granted(t, fmt.Sprint(i)), i)
		}
		require.Zero(t, b.counters.Counts().Degraded)
	})
}

// The deadline of a grant is counted from when its request was sent, also after a wait for others.
func TestLocker_AGrantBeginsWhenItsRequestIsSent(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		b.store.slow.Store(int64(time.Second))
		for i := range 3 * 32 {
			go func() { _, _ = b.Acquire(t.Context(), fmt.Sprint(i), lock.Terms{}) }()
		}
		synctest.Wait()
		began := time.Now()
		grant, err := b.Acquire(t.Context(), "last", lock.Terms{})
		require.NoError(t, err)
		require.Equal(t, 4*time.Second, time.Since(began))
		require.GreaterOrEqual(t, grant.Asked, 3*time.Second)
	})
}

// What was granted in an outage is given back without another call of this process.
func TestLocker_GivesBackByItselfWhenTheStoreIsBack(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		terms := lock.Terms{Terms: lease.Terms{Duration: time.Hour}}
		held, err := b.TryAcquire(t.Context(), "released", terms)
		require.NoError(t, err)
		b.store.lost.Store(true)
		_, err = b.TryAcquire(t.Context(), "nightly", terms)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.ErrorIs(t, b.Release(t.Context(), held), lock.ErrUnavailable)
		pass(time.Minute)
		require.False(t, b.granted(t, "nightly"))
		b.store.lost.Store(false)
		pass(time.Second + 100*time.Millisecond)
		require.True(t, b.granted(t, "nightly"))
		require.True(t, b.granted(t, "released"))
		require.Zero(t, b.Degraded())
	})
}

// Nor does it try forever.
func TestLocker_GivesUpWhatHasExpiredLongAgo(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		b.store.down.Store(true)
		_, err := b.TryAcquire(t.Context(), "nightly", lock.Terms{})
		require.ErrorIs(t, err, lock.ErrUnavailable)
		pass(20 * time.Minute)
		calls := b.counters.Counts().Calls
		require.InDelta(t, 15.5*60/0.8, calls, 10, "once in a pause")
		pass(20 * time.Minute)
		require.Equal(t, calls, b.counters.Counts().Calls)
	})
}

// A renewal ends a sixth of its duration after it was sent. That this is less than other calls
// have says nothing about the store, and neither does a caller that gives up.
func TestLocker_ARenewalThatIsCutShortIsNoOutage(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		for _, c := range []struct{ duration, patience, slow, takes, outage time.Duration }{
			{time.Second, time.Minute, time.Hour, time.Second / 6, 0},
			{time.Minute, time.Second, 5 * time.Second, time.Second, 0},
			{time.Minute, time.Minute, time.Hour, 10 * time.Second, 10 * time.Second},
		} {
			grant, err := b.TryAcquire(t.Context(), fmt.Sprint(c), lock.Terms{Terms: lease.Terms{Duration: c.duration}})
			require.NoError(t, err)
			b.store.slow.Store(int64(c.slow))
			began := time.Now()
			_, err = b.Extend(hasty(t, c.patience), grant)
			require.Error(t, err)
			require.Equal(t, c.takes, time.Since(began))
			pass(10*time.Second - c.takes)
			require.Equal(t, c.outage > 0, b.Degraded() > 0, c)
			b.store.slow.Store(0)
			pass(2 * time.Second)
			require.NoError(t, b.Release(t.Context(), grant))
		}
	})
}

func TestLocker_CloseGivesBackWhatIsUnderWay(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		b.store.slow.Store(int64(time.Second))
		_, err := b.TryAcquire(hasty(t, time.Millisecond), "nightly", lock.Terms{Terms: lease.Terms{Duration: time.Hour}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		b.Close()
		require.True(t, b.granted(t, "nightly"))
		b.Close()

		b.store.down.Store(true)
		_, err = b.TryAcquire(t.Context(), "other", lock.Terms{})
		require.ErrorIs(t, err, lock.ErrUnavailable)
		began := time.Now()
		b.Close()
		require.Less(t, time.Since(began), time.Second, "a store that is down is not waited for")
	})
}

func TestLocker_AProbeThatIsGivenUpIsNoOutage(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		b.store.slow.Store(int64(time.Second))
		health, err := b.Probe(hasty(t, time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, lock.ErrUnavailable)
		require.Equal(t, lock.Unhealthy, health, "nobody knows better")
		pass(5 * time.Second)
		require.Zero(t, b.counters.Counts().Degraded)
		health, err = b.Probe(t.Context())
		require.NoError(t, err)
		require.Equal(t, lock.Healthy, health)
	})
}

// What the store refuses of one lock concerns no other.
func TestLocker_ARefusalIsNoOutage(t *testing.T) {
	locker(t, func(t *testing.T, b bench) {
		b.store.refused = "damaged"
		_, err := b.TryAcquire(t.Context(), "damaged", lock.Terms{Policy: lock.Fail})
		require.ErrorIs(t, err, lock.ErrRefused)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		grant, err := b.TryAcquire(t.Context(), "nightly", lock.Terms{Policy: lock.RunLocal})
		require.NoError(t, err)
		require.False(t, grant.Local)
		require.Zero(t, b.counters.Counts().Degraded)
	})
}
