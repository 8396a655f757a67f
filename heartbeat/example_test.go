package heartbeat_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/memory"
)

// A lock is kept alive while its holder works: ctx ends before another may have it.
func ExampleKeeper() {
	ctx, stop := context.WithCancel(context.Background())
	locker := lock.NewLocker(memory.New(memory.Config{}).Locks(), lock.LockerConfig{})
	keeper := heartbeat.New(locker, heartbeat.Config{
		Terms: lease.Terms{}.WithDefaults(), Elapsed: lease.Elapsed, Random: rand.Float64, Logger: slog.New(slog.DiscardHandler),
	})
	var running sync.WaitGroup
	running.Go(func() { keeper.Run(ctx) })
	defer running.Wait()
	defer stop()

	grant, err := locker.TryAcquire(ctx, "import", lock.Terms{})
	if err != nil {
		fmt.Println(err)
		return
	}
	held, hold := keeper.Hold(ctx, grant.Lease)
	fmt.Println("valid:", hold.Valid(), held.Err())
	hold.Release()
	fmt.Println(locker.Release(ctx, grant))
	// Output:
	// valid: true <nil>
	// <nil>
}
