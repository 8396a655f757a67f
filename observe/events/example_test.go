package events_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe/events"
	"github.com/durable-worker/durable-worker/store/memory"
)

// A function gets every run that dies. A webhook is another Sink: NewWebhook.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	stream := events.New(events.SinkFunc(func(_ context.Context, batch events.Batch) error {
		for _, e := range batch.Events {
			fmt.Println(e.Kind, e.Run.Job, "after attempt", e.Run.Attempt)
		}
		return nil
	}), events.Config{Kinds: []events.Kind{events.RunDead}})

	store := memory.New(memory.Config{})
	worker := durable.NewWorker(store, durable.WorkerConfig{Hooks: stream.Hooks()})
	job := durable.NewJob[string]("mail")
	durable.Register(worker, job, func(context.Context, *durable.Run[string]) error {
		stop()
		return durable.Permanent(fmt.Errorf("no such address"))
	})
	if _, err := job.Enqueue(ctx, durable.NewClient(store), "ann@example.com"); err != nil {
		fmt.Println(err)
	}
	sending, stopSending := context.WithCancel(context.Background())
	var sender sync.WaitGroup
	sender.Go(func() { stream.Run(sending) })
	if err := worker.Run(ctx); err != nil {
		fmt.Println(err)
	}
	stopSending() // what waits is sent
	sender.Wait()
	// Output: run.dead mail after attempt 1
}
