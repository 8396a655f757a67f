package storetest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
	"github.com/durable-worker/durable-worker/store/storetest"
)

// shifted is a store whose clock a test moves. Put your own in its place.
type shifted struct {
	*memory.Store
	ahead *atomic.Int64
}

// Advance lets runs become due, on the store's clock.
func ExampleBackend() {
	backend := storetest.Backend{
		New: func(*testing.T) store.Store {
			ahead := new(atomic.Int64)
			clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			return shifted{memory.New(memory.Config{Clock: clock}), ahead}
		},
		Advance: func(_ *testing.T, s store.Store, d time.Duration) { s.(shifted).ahead.Add(int64(d)) },
	}
	ctx, db := context.Background(), backend.New(nil)
	mail := durable.NewJob[string]("mail")
	if _, err := mail.Enqueue(ctx, durable.NewClient(db), "ann", durable.After(time.Hour)); err != nil {
		fmt.Println(err)
	}
	due := func() bool {
		heads, err := db.Heads(ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
		return err == nil && heads[0].In <= 0
	}
	fmt.Println(due())
	backend.Advance(nil, db, 2*time.Hour)
	fmt.Println(due())
	// Output:
	// false
	// true
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
