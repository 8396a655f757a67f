// Command transaction takes orders and ships them, each together with its run in
// one transaction of pgx: no order without its run, and no shipment twice.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// OrderArgs are stored with the run as JSON.
type OrderArgs struct {
	Order int `json:"order"`
}

func ship() durable.Job[OrderArgs] {
	return durable.NewJob[OrderArgs]("ship", durable.Timeout(time.Minute), durable.Retry(durable.Fixed(100*time.Millisecond)))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		log.Fatal("usage: transaction postgres://…")
	}
	if err := transaction(ctx, os.Args[1], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func transaction(ctx context.Context, url string, out io.Writer) error {
	pool, err := pgxpool.New(ctx, url) // yours
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := postgres.Open(ctx, url, postgres.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS example_orders (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, shipped int NOT NULL DEFAULT 0)"); err != nil {
		return err
	}

	order, receipt, err := take(ctx, pool, store)
	if err != nil {
		return err
	}

	working, done := context.WithCancel(ctx)
	defer done()
	worker := durable.NewWorker(store, durable.WorkerConfig{PollInterval: 200 * time.Millisecond})
	durable.Register(worker, ship(), func(ctx context.Context, run *durable.Run[OrderArgs]) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }() // no-op after the commit; must not outlast ctx
		if _, err := tx.Exec(ctx, "UPDATE example_orders SET shipped = shipped + 1 WHERE id = $1", run.Args.Order); err != nil {
			return err
		}
		if err := run.CompleteIn(ctx, store.WithTx(tx)); err != nil {
			return err // for instance lease.ErrLost; the update is rolled back
		}
		if run.Attempt == 1 {
			return nil // a commit is easily forgotten: rolled back, and tried again
		}
		defer done()
		return tx.Commit(ctx)
	})
	if err := worker.Run(working); err != nil {
		return err
	}

	record, err := store.Run(context.WithoutCancel(ctx), receipt.ID)
	if err != nil {
		return err
	}
	var shipped int
	if err := pool.QueryRow(context.WithoutCancel(ctx), "SELECT shipped FROM example_orders WHERE id = $1", order).Scan(&shipped); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s in attempt %d, shipped %d time\n", record.State, record.Attempt, shipped)
	fmt.Fprintln(out, "attempt 1:", *record.Attempts[0].Error)
	return nil
}

// take stores an order and the run that ships it, both or neither.
func take(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store) (order int, receipt durable.Receipt, err error) {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return 0, receipt, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if err := tx.QueryRow(ctx, "INSERT INTO example_orders DEFAULT VALUES RETURNING id").Scan(&order); err != nil {
		return 0, receipt, err
	}
	receipt, err = ship().Enqueue(ctx, store.WithTx(tx), OrderArgs{Order: order})
	if err != nil {
		return 0, receipt, err
	}
	return order, receipt, tx.Commit(ctx)
}
