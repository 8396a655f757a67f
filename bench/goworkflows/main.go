// Command goworkflows executes workflows with go-workflows on SQLite, and prints what that cost. It
// speaks with the benchmark as its own child processes do, and is a module of its own for what it
// needs.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/cschleiden/go-workflows/backend"
	"github.com/cschleiden/go-workflows/backend/monoprocess"
	"github.com/cschleiden/go-workflows/backend/sqlite"
	"github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/worker"
	"github.com/cschleiden/go-workflows/workflow"
)

// usage is what the benchmark reads.
type usage struct {
	Error string `json:"error,omitempty"`
	CPU   int64  `json:"cpu"` // nanoseconds since go
}

// work is what is executed.
type work struct {
	workflows, steps, handlers int
}

func main() {
	var w work
	target := flag.String("target", "", "sqlite:file")
	flag.IntVar(&w.workflows, "workflows", 100, "workflows")
	flag.IntVar(&w.steps, "steps", 10, "activities of each")
	flag.IntVar(&w.handlers, "handlers", 100, "workflows and activities that are executed concurrently")
	flag.Parse()
	if err := serve(context.Background(), strings.TrimPrefix(*target, "sqlite:"), w); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, path string, w work) error {
	answers := json.NewEncoder(os.Stdout)
	quiet := sqlite.WithBackendOptions(backend.WithLogger(slog.New(slog.DiscardHandler)))
	// The backend that tells its pollers of what they wait for is the faster one.
	store := monoprocess.NewMonoprocessBackend(sqlite.NewSqliteBackend(path, quiet))
	defer func() { _ = store.Close() }()
	options := worker.DefaultOptions
	options.MaxParallelWorkflowTasks, options.MaxParallelActivityTasks = w.handlers, w.handlers
	options.WorkflowPollingInterval, options.ActivityPollingInterval = time.Millisecond, time.Millisecond
	options.WorkflowExecutorCacheSize = max(w.workflows, 128)
	working := worker.New(store, &options)
	ctx, cancel := context.WithCancel(ctx)
	for _, err := range []error{working.RegisterWorkflow(steps), working.RegisterActivity(step), working.Start(ctx)} {
		if err != nil {
			cancel()
			return answers.Encode(usage{Error: err.Error()})
		}
	}
	defer func() { cancel(); _ = working.WaitForCompletion() }()
	if err := answers.Encode(usage{}); err != nil {
		return err
	}
	var before time.Duration
	done := make(chan error, 1)
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		switch commands.Text() {
		case "go":
			before = cpu()
			go func() { done <- w.execute(ctx, client.New(store)) }()
		case "report":
			found := usage{}
			if err := <-done; err != nil {
				found.Error = err.Error()
			}
			found.CPU = int64(cpu() - before)
			if err := answers.Encode(found); err != nil {
				return err
			}
		}
	}
	return commands.Err()
}

// steps executes one activity after the other.
func steps(ctx workflow.Context, n int) (int, error) {
	for i := range n {
		if _, err := workflow.ExecuteActivity[int](ctx, workflow.DefaultActivityOptions, step, i).Get(ctx); err != nil {
			return 0, err
		}
	}
	return n, nil
}

func step(_ context.Context, n int) (int, error) { return n, nil }

// execute begins all workflows, and waits for the result of each.
func (w work) execute(ctx context.Context, c *client.Client) error {
	begun := make([]*workflow.Instance, w.workflows)
	for i := range begun {
		one, err := c.CreateWorkflowInstance(ctx, client.WorkflowInstanceOptions{InstanceID: fmt.Sprint("bench-", i)}, steps, w.steps)
		if err != nil {
			return err
		}
		begun[i] = one
	}
	for _, one := range begun {
		n, err := client.GetWorkflowResult[int](ctx, c, one, 5*time.Minute)
		if err != nil || n != w.steps {
			return fmt.Errorf("%d of %d steps: %w", n, w.steps, err)
		}
	}
	return nil
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
