// Command dbos executes workflows with DBOS Go, and prints what that cost. It speaks with
// the benchmark as its own child processes do, and is a module of its own for what it needs.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite"
)

// usage is what the benchmark reads.
type usage struct {
	Error string `json:"error,omitempty"`
	CPU   int64  `json:"cpu"` // nanoseconds since go
}

// work is what is executed: each handler begins a workflow when its last one has ended.
type work struct {
	workflows, steps, handlers int
}

func main() {
	var w work
	target := flag.String("target", "", "URL of the database")
	flag.IntVar(&w.workflows, "workflows", 1000, "workflows")
	flag.IntVar(&w.steps, "steps", 10, "steps of each")
	flag.IntVar(&w.handlers, "handlers", 100, "goroutines that execute workflows")
	flag.Parse()
	if err := serve(*target, w); err != nil {
		log.Fatal(err)
	}
}

func serve(target string, w work) error {
	answers := json.NewEncoder(os.Stdout)
	separator := "?"
	if strings.Contains(target, "?") {
		separator = "&"
	}
	if strings.HasPrefix(target, "postgres") {
		target += separator + "pool_max_conns=50" // the fastest of 20, its default, 50 and 100
	}
	ctx, err := dbos.NewContext(context.Background(), dbos.Config{AppName: "bench", DatabaseURL: target, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return answers.Encode(usage{Error: err.Error()})
	}
	dbos.RegisterWorkflow(ctx, w.workflow)
	if err := dbos.Launch(ctx); err != nil {
		return answers.Encode(usage{Error: err.Error()})
	}
	defer func() { _ = dbos.Shutdown(ctx, 5*time.Second) }()
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
			go func() { done <- w.execute(ctx) }()
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
	if err := commands.Err(); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// workflow has steps that return numbers.
func (w work) workflow(ctx dbos.Context, n int) (int, error) {
	for i := range w.steps {
		if _, err := dbos.RunAsStep(ctx, func(context.Context) (int, error) { return i, nil }); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// execute begins workflows without a queue, which is their fastest way.
func (w work) execute(ctx dbos.Context) error {
	numbers, faults := make(chan int), make(chan error, w.handlers)
	var executing sync.WaitGroup
	for range w.handlers {
		executing.Go(func() {
			for n := range numbers {
				handle, err := dbos.RunWorkflow(ctx, w.workflow, n)
				if err == nil {
					_, err = handle.GetResult()
				}
				if err != nil {
					faults <- err
					return
				}
			}
		})
	}
	for n := range w.workflows {
		select {
		case numbers <- n:
		case err := <-faults:
			return err
		}
	}
	close(numbers)
	executing.Wait()
	select {
	case err := <-faults:
		return err
	default:
		return nil
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
