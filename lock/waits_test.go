package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/memory"
)

func TestLocker_ReleaseElsewhereWakesWhoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks, start := memory.New(memory.Config{}).Locks(), time.Now()
		elapsed := func() time.Duration { return time.Since(start) }
		holder := lock.NewLocker(locks, lock.LockerConfig{Owner: "holder", Waits: locks, Elapsed: elapsed})
		waiter := lock.NewLocker(locks, lock.LockerConfig{Owner: "waiter", Waits: locks, Elapsed: elapsed})
		noted := func() []lock.Wait {
			waits, err := locks.ListWaits(t.Context(), "", 10)
			require.NoError(t, err)
			return waits
		}
		for range 10 {
			held, err := holder.Acquire(t.Context(), "nightly", lock.Terms{})
			require.NoError(t, err)
			got := make(chan lock.Grant)
			for range 2 {
				go func() {
					grant, err := waiter.Acquire(t.Context(), "nightly", lock.Terms{Wait: -1})
					require.NoError(t, err)
					got <- grant
				}()
			}
			time.Sleep(15*time.Second + 300*time.Millisecond) //nolint:forbidigo // virtual time, longer than a note's life
			waits := noted()
			require.Len(t, waits, 1)
			require.Equal(t, lock.Wait{Name: "nightly", Waiter: waits[0].Waiter, Owner: "waiter", Calls: 2, Since: waits[0].Since}, waits[0])
			began := time.Now()
			require.NoError(t, holder.Release(t.Context(), held))
			require.NoError(t, waiter.Release(t.Context(), <-got))
			require.NoError(t, waiter.Release(t.Context(), <-got))
			require.Zero(t, time.Since(began), "neither waited for its pause to end")
			synctest.Wait()
			require.Empty(t, noted(), "no one waits any more")
		}
	})
}

// deaf are locks whose notes cannot be written.
type deaf struct{ lock.Locks }

func (deaf) NoteWait(context.Context, lock.Wait, time.Duration) error { return errDown }

func (deaf) HearFreed(context.Context, lease.ClaimID, func(string)) error { return errDown }

func TestLocker_WaitsThatCannotBeNotedAreWaitedOutByAsking(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks, start := deaf{memory.New(memory.Config{}).Locks()}, time.Now()
		elapsed := func() time.Duration { return time.Since(start) }
		holder := lock.NewLocker(locks, lock.LockerConfig{Elapsed: elapsed})
		waiter := lock.NewLocker(locks, lock.LockerConfig{Elapsed: elapsed, Waits: locks})
		held, err := holder.Acquire(t.Context(), "nightly", lock.Terms{})
		require.NoError(t, err)
		go func() {
			time.Sleep(20 * time.Second) //nolint:forbidigo // virtual time
			require.NoError(t, holder.Release(t.Context(), held))
		}()
		began := time.Now()
		_, err = waiter.Acquire(t.Context(), "nightly", lock.Terms{Wait: -1})
		require.NoError(t, err)
		require.Less(t, time.Since(began), 21500*time.Millisecond)
	})
}
