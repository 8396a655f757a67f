// Command rolling is the worker program of the tests of a rolling deploy. The tests
// run it as it is and as it was at earlier schemas, whose sources are kept in
// testdata/rolling, on one database.
//
//	rolling migrate          applies the migrations
//	rolling enqueue PREFIX   enqueues runs of each job, named after the prefix
//	rolling limited PREFIX   enqueues runs under a limit, which a worker has to know
//	rolling work NAME        works until SIGTERM, and prints how it is
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Getenv("ROLLING_URL"), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, url string, args []string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.Open(ctx, url, postgres.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	switch {
	case len(args) == 1 && args[0] == "migrate":
		_, err = store.Migrate(ctx)
		return err
	case len(args) == 2 && args[0] == "enqueue":
		return enqueue(ctx, pool, store, args[1])
	case len(args) == 2 && args[0] == "limited":
		return enqueueLimited(ctx, durable.NewClient(store), args[1])
	case len(args) == 2 && args[0] == "work":
		return work(ctx, out, pool, store, args[1])
	default:
		return fmt.Errorf("usage: rolling migrate | enqueue PREFIX | limited PREFIX | work NAME, and not %q", args)
	}
}

// work serves until ctx ends, and prints each change of the worker's status.
func work(ctx context.Context, out io.Writer, pool *pgxpool.Pool, store *postgres.Store, name string) error {
	worker := durable.NewWorker(store, durable.WorkerConfig{
		Name: name, MaxConcurrentRuns: 8, PollInterval: 200 * time.Millisecond, DrainTimeout: time.Second,
		Terms: lease.Terms{Duration: 4 * time.Second},
	})
	handlers{pool: pool, store: store, worker: name}.register(worker)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	shown := ""
	for {
		select {
		case err := <-ended:
			fmt.Fprintln(out, "stopped")
			return err
		case <-time.After(20 * time.Millisecond):
		}
		status := worker.Status()
		now := fmt.Sprintf("ready %v, misfit %q", status.Ready, status.Misfit)
		for _, aside := range status.SetAside {
			now += fmt.Sprintf(", %s %s: %s", aside.Kind, aside.Name, aside.Error)
		}
		if now != shown {
			fmt.Fprintln(out, now)
			shown = now
		}
	}
}
