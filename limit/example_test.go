package limit_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/limit"
	"github.com/durable-worker/durable-worker/store/memory"
)

// A web service answers 429 when a customer has had its share, and says when to try again.
func ExampleLimiter_Take() {
	perCustomer := durable.NewLimit("requests", durable.TokenBucket(100, time.Minute, 2))
	limiter := limit.New(memory.New(memory.Config{}), perCustomer, limit.Config{})
	for range 3 {
		err := limiter.Take(context.Background(), "acme", 1)
		var full *limit.FullError
		if errors.As(err, &full) {
			fmt.Println("429, retry after a second:", full.RetryIn <= time.Second)
			continue
		}
		fmt.Println("200", err)
	}
	// Output:
	// 200 <nil>
	// 200 <nil>
	// 429, retry after a second: true
}

// A script calls an API at the rate that runs and other processes share.
func ExampleLimiter_Wait() {
	api := durable.NewLimit("api", durable.TokenBucket(100, time.Second, 10))
	limiter := limit.New(memory.New(memory.Config{}), api, limit.Config{})
	for page := 1; page <= 2; page++ {
		if err := limiter.Wait(context.Background(), "", 1); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("page", page)
	}
	// Output:
	// page 1
	// page 2
}

// One process at a time rebuilds an index, and no run that has the same limit does.
func ExampleLimiter_Do() {
	index := durable.NewLimit("index", durable.Mutex())
	limiter := limit.New(memory.New(memory.Config{}), index, limit.Config{})
	err := limiter.Do(context.Background(), "products", func(ctx context.Context) error {
		_, err := limiter.TryAcquire(ctx, "products", 1)
		fmt.Println("full:", errors.Is(err, limit.ErrFull))
		return ctx.Err() // it ends before another may begin
	})
	fmt.Println(err)
	// Output:
	// full: true
	// <nil>
}

// A penalty stops a key for a time: for runs too.
func ExampleLimiter_Penalize() {
	api := durable.NewLimit("api", durable.Semaphore(5))
	limiter := limit.New(memory.New(memory.Config{}), api, limit.Config{})
	ctx := context.Background()
	fmt.Println(limiter.Penalize(ctx, "acme", time.Hour)) // its answer was 429, Retry-After: 3600
	_, err := limiter.TryAcquire(ctx, "acme", 1)
	fmt.Println(errors.Is(err, limit.ErrFull))
	_, err = limiter.TryAcquire(ctx, "bolt", 1)
	fmt.Println(err)
	// Output:
	// <nil>
	// true
	// <nil>
}
