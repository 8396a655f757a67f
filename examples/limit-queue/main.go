// Command limit-queue executes at most three runs of the queue reports at a time, over all
// workers and whichever jobs they are of. Runs of other queues are not in their way.
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
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store/memory"
)

var (
	daily   = durable.NewJob[int]("daily-report", durable.OnQueue("reports"))
	monthly = durable.NewJob[int]("monthly-report", durable.OnQueue("reports"))
	mail    = durable.NewJob[int]("mail")
)

func main() {
	if err := reports(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func reports(ctx context.Context, out io.Writer) error {
	db := memory.New(memory.Config{})
	// durable-worker queues set reports --max-concurrent 3 --force
	if _, err := operate.New(db, operate.Config{}).As("ann").CapUnusedQueue(ctx, "reports", 3); err != nil {
		return err
	}
	var executed counter
	executed.all.Add(30)
	working, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for i := range 2 { // two workers, ten runs each
		worker := durable.NewWorker(db, durable.WorkerConfig{
			Name: fmt.Sprintf("worker-%d", i+1), MaxConcurrentRuns: 10, Queues: []durable.Queue{{Name: "default"}, {Name: "reports"}},
			Process: new(durable.Process),
		})
		durable.Register(worker, daily, executed.report)
		durable.Register(worker, monthly, executed.report)
		durable.Register(worker, mail, func(context.Context, *durable.Run[int]) error { executed.all.Done(); return nil })
		running.Go(func() { _ = worker.Run(working) })
	}
	var runs []durable.NewRun
	for i := range 10 {
		runs = append(runs, daily.New(i), monthly.New(i), mail.New(i))
	}
	if _, err := durable.NewClient(db).Enqueue(ctx, runs...); err != nil {
		return err
	}
	executed.all.Wait()
	fmt.Fprintf(out, "20 reports of two jobs on two workers, at most %d at a time\n", executed.most)
	return nil
}

// counter counts the reports that execute concurrently.
type counter struct {
	all sync.WaitGroup

	mu        sync.Mutex
	executing int
	most      int
}

func (c *counter) report(context.Context, *durable.Run[int]) error {
	c.add(1)
	time.Sleep(20 * time.Millisecond) // the work
	c.add(-1)
	c.all.Done()
	return nil
}

func (c *counter) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.executing += n
	c.most = max(c.most, c.executing)
}
