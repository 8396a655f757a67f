package limit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/limit"
	"github.com/durable-worker/durable-worker/store/memory"
)

// A request of a web service counts under the same limit as runs do.
func ExampleLimiter_Take() {
	ctx, github := context.Background(), durable.NewLimit("github", durable.FixedWindow(2, time.Hour))
	limiter := limit.New(memory.New(memory.Config{}), github, limit.Config{Logger: slog.New(slog.DiscardHandler)})
	for range 3 {
		err := limiter.Take(ctx, "", 1)
		fmt.Println("full:", errors.Is(err, limit.ErrFull))
	}
	// Output:
	// full: false
	// full: false
	// full: true
}

// A function has a place while it executes.
func ExampleLimiter_Do() {
	ctx, exports := context.Background(), durable.NewLimit("exports", durable.Semaphore(2))
	limiter := limit.New(memory.New(memory.Config{}), exports, limit.Config{})
	err := limiter.Do(ctx, "customer-7", func(context.Context) error {
		fmt.Println("exporting")
		return nil
	})
	fmt.Println(err)
	// Output:
	// exporting
	// <nil>
}
