package storetest_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
	"github.com/durable-worker/durable-worker/store/storetest"
)

// shifted is a store whose clock a test moves. Put your own in its place.
type shifted struct {
	*memory.Store
	ahead *atomic.Int64
}

// The test of a store of your own is its construction and one call.
func ExampleTestStore() {
	_ = func(t *testing.T) { // TestContract
		storetest.TestStore(t, storetest.Backend{
			New: func(*testing.T) store.Store {
				ahead := new(atomic.Int64)
				clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				return shifted{memory.New(memory.Config{Clock: clock}), ahead}
			},
			Advance: func(_ *testing.T, s store.Store, d time.Duration) { s.(shifted).ahead.Add(int64(d)) },
		})
	}
}
