// Command limit-share divides twenty exports an hour between the customers that want
// some: one alone gets all of them, four get five each. The clock of its store is set by
// hand: an hour takes a moment.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/memory"
)

// Exports are twenty an hour over all customers, two at least and twenty at most for each.
var Exports = durable.NewLimit("exports", durable.DynamicWindow(20, time.Hour, 60, 2, 20))

var export = durable.NewJob[string]("export",
	durable.Limited(Exports, durable.KeyFrom(func(customer string) string { return customer })))

func main() {
	if err := share(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func share(ctx context.Context, out io.Writer) error {
	clock := &hands{now: time.Date(2030, 1, 7, 9, 0, 0, 0, time.UTC)}
	db := memory.New(memory.Config{Clock: clock.read})
	exported := &tally{of: map[string]int{}, changed: make(chan struct{}, 1)}
	worker := durable.NewWorker(db, durable.WorkerConfig{})
	durable.Register(worker, export, func(_ context.Context, run *durable.Run[string]) error {
		exported.add(run.Args)
		return nil
	})
	working, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = worker.Run(working) })
	defer running.Wait()
	defer stop()
	for !worker.Status().Ready { // it has declared the limit
		time.Sleep(time.Millisecond)
	}
	client := durable.NewClient(db)
	for hour, customers := range [][]string{{"ada"}, {"ada", "bob", "cyd", "dan"}} {
		clock.advance(time.Duration(hour) * 61 * time.Minute)
		var runs []durable.NewRun
		for range 20 {
			for _, customer := range customers {
				runs = append(runs, export.New(customer))
			}
		}
		if _, err := client.Enqueue(ctx, runs...); err != nil {
			return err
		}
		exported.wait(20)
		for _, customer := range customers {
			fmt.Fprintf(out, "hour %d: %s had %d exports\n", hour+1, customer, exported.take(customer))
		}
	}
	return nil
}

// tally counts exports by customer.
type tally struct {
	mu      sync.Mutex
	of      map[string]int
	changed chan struct{}
}

func (t *tally) add(customer string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of[customer]++
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// wait waits until there are n exports.
func (t *tally) wait(n int) {
	for {
		t.mu.Lock()
		sum := 0
		for _, count := range t.of {
			sum += count
		}
		t.mu.Unlock()
		if sum >= n {
			return
		}
		<-t.changed
	}
}

func (t *tally) take(customer string) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n = t.of[customer]
	delete(t.of, customer)
	return n
}

// hands are those of a clock that is set by hand.
type hands struct {
	mu  sync.Mutex
	now time.Time
}

func (h *hands) read() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *hands) advance(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}
