package logs_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/observe/logs"
	"github.com/durable-worker/durable-worker/store/memory"
)

// A worker whose log may stop being read goes on all the same.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	lines := logs.New(os.Stdout, logs.Config{}) // a service: os.Stderr
	options := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{} // so that the output is always the same
		}
		return a
	}}
	store := memory.New(memory.Config{})
	worker := durable.NewWorker(store, durable.WorkerConfig{Name: "one", Logger: slog.New(slog.NewTextHandler(lines, options))})
	job := durable.NewJob[string]("greet", durable.Timeout(time.Minute))
	durable.Register(worker, job, func(_ context.Context, run *durable.Run[string]) error {
		fmt.Fprintln(lines, "hello", run.Args)
		stop()
		return nil
	})
	if _, err := job.Enqueue(ctx, durable.NewClient(store), "world"); err != nil {
		fmt.Println(err)
	}
	if err := worker.Run(ctx); err != nil {
		fmt.Println(err)
	}
	last, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := lines.Flush(last); err != nil {
		fmt.Println(err) // the last lines are lost
	}
	fmt.Println("dropped:", lines.Dropped(), "blocked for:", lines.Blocked())
	// Unordered output:
	// level=INFO msg="worker started" event=worker.started worker=one jobs=1 max_concurrent_runs=100
	// hello world
	// level=INFO msg="worker draining" event=worker.draining worker=one executing=0 timeout=10s
	// level=INFO msg="worker stopped" event=worker.stopped worker=one
	// dropped: 0 blocked for: 0s
}
