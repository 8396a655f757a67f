package redislock_test

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/lock/redislock"
)

// A Locker takes its locks in Redis, whichever store the runs are in.
func ExampleOpen() {
	ctx := context.Background()
	locks, err := redislock.Open(ctx, "redis://127.0.0.1:6379/0", redislock.Config{})
	if err != nil {
		return // the server does not answer, or may evict keys
	}
	defer func() { _ = locks.Close() }()
	locker := lock.NewLocker(locks, lock.LockerConfig{})
	if grant, err := locker.TryAcquire(ctx, "import", lock.Terms{}); err == nil {
		_ = locker.Release(ctx, grant) // grant.Fence goes to the resource that checks it
	}
}

func ExampleDescribe() {
	fmt.Println(redislock.Describe("rediss://app:secret@cache.example.com:6380/2"))
	// Output: rediss://cache.example.com:6380/2 <nil>
}
