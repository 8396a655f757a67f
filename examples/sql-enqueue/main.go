// Command sql-enqueue executes runs that a trigger of PostgreSQL enqueues: any
// program that inserts an order, in whatever language, has it confirmed.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/postgres"
)

//go:embed orders.sql
var orders string

// ConfirmArgs are what the trigger writes.
type ConfirmArgs struct {
	Order int64  `json:"order"`
	Email string `json:"email"`
}

func confirm() durable.Job[ConfirmArgs] {
	return durable.NewJob[ConfirmArgs]("confirm", durable.Timeout(time.Minute))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		log.Fatal("usage: sql-enqueue postgres://…")
	}
	if err := shop(ctx, os.Args[1], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func shop(ctx context.Context, url string, out io.Writer) (err error) {
	store, err := postgres.Open(ctx, url, postgres.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	w := durable.NewWorker(store, durable.WorkerConfig{})
	durable.Register(w, confirm(), func(_ context.Context, run *durable.Run[ConfirmArgs]) error {
		fmt.Fprintf(out, "order confirmed to %s\n", run.Args.Email)
		stop() // one is enough here
		return nil
	})
	worked := make(chan error, 1)
	go func() { worked <- w.Run(working) }()
	defer func() { stop(); err = errors.Join(err, <-worked) }()
	if err := declared(working, store); err != nil {
		return err
	}
	if err := order(ctx, url); err != nil {
		return err
	}
	<-working.Done()
	return ctx.Err()
}

// declared waits for the worker to declare the job: SQL knows jobs by name.
func declared(ctx context.Context, store *postgres.Store) error {
	for {
		jobs, err := store.Jobs(ctx)
		if err != nil || slices.ContainsFunc(jobs, func(job durable.JobInfo) bool { return job.Name == confirm().Name() }) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// order is what any program does that knows nothing of durable.
func order(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, orders); err != nil {
		return err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO web_orders (email) VALUES ('bob@example.com')"); err != nil {
		return err
	}
	if err := tx.Rollback(ctx); err != nil { // no order, no run
		return err
	}
	_, err = conn.Exec(ctx, "INSERT INTO web_orders (email) VALUES ('ada@example.com')")
	return err
}
