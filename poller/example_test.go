package poller_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/poller"
)

// Two slots are filled from a source of three items; each item frees its slot.
func ExamplePoller() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	waiting := []string{"a", "b", "c"}
	var p *poller.Poller[string]
	p = poller.New(poller.Config{Capacity: 2, Batch: 2, Interval: time.Hour, Elapsed: lease.Elapsed, Random: rand.Float64},
		func(_ context.Context, n int) (poller.Answer[string], error) {
			n = min(n, len(waiting))
			items := waiting[:n]
			waiting = waiting[n:]
			return poller.Answer[string]{Items: items, Left: len(waiting) > 0, Next: -1}, nil
		},
		func(item string) {
			fmt.Println(item)
			if item == "c" {
				stop()
			}
			p.Free(1)
		})
	p.Run(ctx)
	// Output:
	// a
	// b
	// c
}
