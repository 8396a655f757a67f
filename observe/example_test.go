package observe_test

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store/memory"
)

// Dead runs raise an alarm, with the whole record.
func ExampleHooks() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := memory.New(memory.Config{})
	worker := durable.NewWorker(store, durable.WorkerConfig{Hooks: observe.Hooks{
		RunFailed: func(_ context.Context, f observe.RunFailure) {
			fmt.Println(f.Record.Job, string(f.Record.Args), "dead:", f.Dead, "because:", f.Err)
			stop()
		},
	}})
	job := durable.NewJob[string]("mail")
	durable.Register(worker, job, func(context.Context, *durable.Run[string]) error {
		return durable.Permanent(fmt.Errorf("no such address"))
	})
	if _, err := job.Enqueue(ctx, durable.NewClient(store), "nobody@example.com"); err != nil {
		fmt.Println(err)
	}
	if err := worker.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: mail "nobody@example.com" dead: true because: no such address
}

// Two observers stand side by side.
func ExampleJoin() {
	lost := func(name string) observe.Hooks {
		return observe.Hooks{RunLost: func(l observe.RunLoss) { fmt.Println(name, l.Kind) }}
	}
	observe.Join(lost("metrics:"), lost("alarms:")).RunLost(observe.RunLoss{Kind: observe.LeaseLost})
	// Output:
	// metrics: lease lost
	// alarms: lease lost
}
