// Command transaction-sql stores accounts, each together with the run that
// greets its owner, in transactions of database/sql.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"; lib/pq will do as well

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// GreetArgs are stored with the run as JSON.
type GreetArgs struct {
	Email string `json:"email"`
}

func greet() durable.Job[GreetArgs] {
	return durable.NewJob[GreetArgs]("greet", durable.Timeout(time.Minute))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		log.Fatal("usage: transaction-sql postgres://…")
	}
	if err := accounts(ctx, os.Args[1], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// table begins with no accounts, also when the example is run again.
const table = `
CREATE TABLE IF NOT EXISTS example_accounts (email text PRIMARY KEY, greeted boolean NOT NULL DEFAULT false);
DELETE FROM example_accounts`

const counts = "SELECT count(*) FILTER (WHERE greeted), count(*) FILTER (WHERE NOT greeted) FROM example_accounts"

func accounts(ctx context.Context, url string, out io.Writer) error {
	db, err := sql.Open("pgx", url) // yours
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	store, err := postgres.Open(ctx, url, postgres.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, table); err != nil {
		return err
	}

	// Bob signs up twice. The second time his row is refused, and with it goes
	// the run that was enqueued before.
	for _, email := range []string{"ada@example.com", "bob@example.com", "bob@example.com"} {
		err := within(ctx, db, func(tx *sql.Tx) error {
			if _, err := greet().Enqueue(ctx, store.WithSQLTx(tx), GreetArgs{email}); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO example_accounts (email) VALUES ($1)", email)
			return err
		})
		fmt.Fprintf(out, "%s signed up: %t\n", email, err == nil)
	}

	working, done := context.WithCancel(ctx)
	defer done()
	greeted := make(chan struct{}, 2)
	worker := durable.NewWorker(store, durable.WorkerConfig{PollInterval: 200 * time.Millisecond})
	durable.Register(worker, greet(), func(ctx context.Context, run *durable.Run[GreetArgs]) error {
		err := within(ctx, db, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "UPDATE example_accounts SET greeted = true WHERE email = $1", run.Args.Email); err != nil {
				return err
			}
			return run.CompleteIn(ctx, store.WithSQLTx(tx))
		})
		if greeted <- struct{}{}; len(greeted) == cap(greeted) {
			done()
		}
		return err
	})
	if err := worker.Run(working); err != nil {
		return err
	}
	var welcome, waiting int
	if err := db.QueryRowContext(context.WithoutCancel(ctx), counts).Scan(&welcome, &waiting); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d greeted, %d waiting\n", welcome, waiting)
	return nil
}

// within does work in a transaction: all of it or nothing.
func within(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
