package locktest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/lock/locktest"
	"github.com/durable-worker/durable-worker/store/memory"
)

// shifted are locks whose clock a test moves. Put your own in their place.
type shifted struct {
	lock.Locks
	ahead *atomic.Int64
}

// Advance lets grants expire, on the store's clock.
func ExampleBackend() {
	backend := locktest.Backend{
		New: func(*testing.T) lock.Locks {
			ahead := new(atomic.Int64)
			clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			return shifted{memory.New(memory.Config{Clock: clock}).Locks(), ahead}
		},
		Advance: func(_ *testing.T, locks lock.Locks, d time.Duration) { locks.(shifted).ahead.Add(int64(d)) },
	}
	ctx, locks := context.Background(), backend.New(nil)
	acquired := func(owner string) bool {
		answer, err := locks.Acquire(ctx, lock.Request{Name: "import", Slots: 1, Claim: lease.NewClaimID(), Owner: owner, Duration: time.Minute})
		return err == nil && answer.Granted
	}
	fmt.Println("ann", acquired("ann"))
	fmt.Println("bob", acquired("bob"))
	backend.Advance(nil, locks, time.Hour)
	fmt.Println("bob", acquired("bob"))
	// Output:
	// ann true
	// bob false
	// bob true
}

// The test of a store of locks is its construction and one call.
func ExampleTestLocks() {
	_ = func(t *testing.T) { // TestContract
		locktest.TestLocks(t, locktest.Backend{
			New: func(*testing.T) lock.Locks {
				ahead := new(atomic.Int64)
				clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				return shifted{memory.New(memory.Config{Clock: clock}).Locks(), ahead}
			},
			Advance: func(_ *testing.T, locks lock.Locks, d time.Duration) { locks.(shifted).ahead.Add(int64(d)) },
		})
	}
}
