package lock_test

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/memory"
)

// One process at a time does what the name means.
func ExampleLocker_TryAcquire() {
	ctx := context.Background()
	locker := lock.NewLocker(memory.New(memory.Config{}).Locks(), lock.LockerConfig{})
	grant, err := locker.TryAcquire(ctx, "import", lock.Terms{})
	if err != nil {
		fmt.Println(err) // lock.ErrHeld: another has it
		return
	}
	fmt.Println("slot", grant.Slot, "fenced:", grant.Fence > 0)
	fmt.Println(locker.Release(ctx, grant))
	// Output:
	// slot 0 fenced: true
	// <nil>
}
