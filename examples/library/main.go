// Command library executes runs with the library alone, without durablecmd.
package main

import (
	"context"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := work(ctx, "library.db"); err != nil {
		log.Fatal(err)
	}
}

func work(ctx context.Context, path string) error {
	store, err := sqlite.Open(ctx, path, sqlite.Config{}) // or postgres.Open
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil { // Open does not create the schema
		return err
	}
	welcome := durable.NewJob[string]("welcome", durable.Timeout(time.Minute))
	if _, err := welcome.Enqueue(ctx, durable.NewClient(store), "ada@example.com"); err != nil {
		return err
	}
	worker := durable.NewWorker(store, durable.WorkerConfig{Logger: slog.Default()})
	durable.Register(worker, welcome, func(_ context.Context, run *durable.Run[string]) error {
		run.Log().Info("welcome", "to", run.Args)
		return nil
	})
	return worker.Run(ctx) // works until ctx ends, then drains
}
