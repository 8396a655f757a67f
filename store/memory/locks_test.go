package memory_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/lock/locktest"
	"github.com/durable-worker/durable-worker/store/memory"
)

// shiftedLocks are locks whose clock jumps ahead when the test says so.
type shiftedLocks struct {
	lock.Locks
	ahead *atomic.Int64
}

func TestLocks(t *testing.T) {
	locktest.TestLocks(t, locktest.Backend{
		New: func(*testing.T) lock.Locks {
			ahead := new(atomic.Int64)
			clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			return shiftedLocks{memory.New(memory.Config{Clock: clock}).Locks(), ahead}
		},
		Advance: func(_ *testing.T, locks lock.Locks, d time.Duration) { locks.(shiftedLocks).ahead.Add(int64(d)) },
	})
}

func BenchmarkLocks(b *testing.B) {
	locktest.BenchmarkLocks(b, memory.New(memory.Config{}).Locks())
}
