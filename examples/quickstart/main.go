// Command quickstart enqueues three welcome mails and works on them, with a
// SQLite file as the database. It ends when all are sent.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// WelcomeArgs are stored with the run as JSON.
type WelcomeArgs struct {
	Email string `json:"email"`
}

func welcome() durable.Job[WelcomeArgs] {
	return durable.NewJob[WelcomeArgs]("welcome", durable.MaxAttempts(5), durable.Timeout(time.Minute),
		durable.Retry(durable.Fixed(200*time.Millisecond)))
}

func main() {
	path := flag.String("db", "quickstart.db", "database file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := quickstart(ctx, *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func quickstart(ctx context.Context, path string, out io.Writer) error {
	store, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}

	// The side that enqueues. What is stored here survives the end of the
	// program; another process could work on it.
	job, client := welcome(), durable.NewClient(store)
	var ids []durable.RunID
	for _, email := range []string{"ada@example.com", "busy@example.com"} {
		receipt, err := job.Enqueue(ctx, client, WelcomeArgs{Email: email})
		if err != nil {
			return err
		}
		ids = append(ids, receipt.ID)
	}
	later, err := job.Enqueue(ctx, client, WelcomeArgs{Email: "alan@example.com"}, durable.After(time.Second))
	if err != nil {
		return err
	}
	ids = append(ids, later.ID)

	// The side that works.
	working, done := context.WithCancel(ctx)
	defer done()
	var unsent atomic.Int32
	unsent.Store(int32(len(ids))) //nolint:gosec // three
	worker := durable.NewWorker(store, durable.WorkerConfig{PollInterval: 200 * time.Millisecond})
	durable.Register(worker, job, func(_ context.Context, run *durable.Run[WelcomeArgs]) error {
		if run.Args.Email == "busy@example.com" && run.Attempt < 3 {
			return errors.New("the mail server is busy") // tried again
		}
		if unsent.Add(-1) == 0 {
			done() // the worker finishes this run, then Run returns
		}
		return run.SetResult("sent to " + run.Args.Email)
	})
	if err := worker.Run(working); err != nil {
		return err
	}

	for _, id := range ids {
		record, err := store.Run(context.WithoutCancel(ctx), id)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s in attempt %d: %s\n", record.State, record.Attempt, record.Result)
	}
	return nil
}
