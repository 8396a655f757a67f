// Command processes starts two worker processes on one database, kills one of them
// with its hands full, and shows that every run is executed all the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/durable-worker/durable-worker/store/backend"
	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
)

func work() durable.Job[int] {
	return durable.NewJob[int]("work", durable.Timeout(time.Minute))
}

func main() {
	dsn := flag.String("db", "sqlite:"+filepath.Join(os.TempDir(), "processes.db"), "sqlite:<path> or postgres://…")
	name := flag.String("worker", "", "be the worker process of this name")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	be := worker
	if *name == "" {
		be = processes
	}
	if err := be(ctx, *dsn, *name, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// worker is a process that works until it is told to stop.
func worker(ctx context.Context, dsn, name string, _ io.Writer) error {
	store, err := backend.Open(ctx, dsn, backend.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	w := durable.NewWorker(store, durable.WorkerConfig{
		Name: name, MaxConcurrentRuns: 4, Terms: lease.Terms{Duration: 2 * time.Second}, PollInterval: 100 * time.Millisecond,
	})
	durable.Register(w, work(), func(ctx context.Context, _ *durable.Run[int]) error {
		select {
		case <-time.After(200 * time.Millisecond): // the work
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return w.Run(ctx)
}

func processes(ctx context.Context, dsn, _ string, out io.Writer) error {
	store, err := backend.Open(ctx, dsn, backend.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	client, runs, ids := durable.NewClient(store), make([]durable.NewRun, 100), make([]durable.RunID, 100)
	for i := range runs {
		runs[i] = work().New(i)
		ids[i] = runs[i].ID
	}
	if _, err := client.Enqueue(ctx, runs...); err != nil {
		return err
	}
	var workers []*exec.Cmd
	for _, name := range []string{"one", "two"} {
		cmd := exec.CommandContext(ctx, os.Args[0], "-db", dsn, "-worker", name) //nolint:gosec // this program
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		workers = append(workers, cmd)
	}
	for _, name := range []string{"two", "one"} {
		if err := hasRuns(ctx, store, name); err != nil {
			return err
		}
	}
	err = workers[0].Process.Kill() // kill -9; what Wait then says is no news
	_ = workers[0].Wait()
	fmt.Fprintln(out, "killed one of two workers, with its hands full")
	records, waited := client.Wait(ctx, ids...)
	err = errors.Join(err, waited, workers[1].Process.Signal(syscall.SIGTERM), workers[1].Wait())
	states, crashed := map[durable.State]int{}, 0
	for _, r := range records {
		states[r.State]++
		crashed += r.CrashCount
	}
	fmt.Fprintf(out, "%v, taken over: %t\n", states, crashed > 0)
	return err
}

// hasRuns waits until a worker has runs.
func hasRuns(ctx context.Context, store durable.Store, name string) error {
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		page, err := store.Runs(ctx, durable.Filter{States: []durable.State{durable.Running}})
		if err != nil {
			return err
		}
		for _, r := range page.Runs {
			if r.Worker != nil && *r.Worker == name {
				return nil
			}
		}
	}
}
