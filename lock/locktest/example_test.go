package locktest_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/lock/locktest"
	"github.com/durable-worker/durable-worker/store/memory"
)

// shifted are locks whose clock a test moves. Put your own in their place.
type shifted struct {
	lock.Locks
	ahead *atomic.Int64
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
