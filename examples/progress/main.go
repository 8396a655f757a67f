// Command progress is a web server's part of a long run: it enqueues, shows how far
// the run has come, and waits for the result. The handler logs, and goes on from
// its checkpoint when an attempt has failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func sum() durable.Job[[]int] {
	return durable.NewJob[[]int]("sum", durable.Timeout(time.Minute), durable.Retry(durable.Fixed(100*time.Millisecond)))
}

// soFar is the handler's checkpoint.
type soFar struct {
	Done int `json:"done"`
	Sum  int `json:"sum"`
}

func perform(ctx context.Context, run *durable.Run[[]int]) error {
	var at soFar
	if found, err := run.LastCheckpoint(ctx, &at); err != nil {
		return err
	} else if found {
		run.Log().Info("going on", "from", at.Done)
	}
	for _, n := range run.Args[at.Done:] {
		at.Done, at.Sum = at.Done+1, at.Sum+n
		if err := run.Progress(ctx, float64(at.Done)/float64(len(run.Args)), fmt.Sprint("number ", n)); err != nil {
			return err
		}
		if at.Done == 3 {
			return errors.Join(run.Checkpoint(ctx, at), errors.New("out of breath"))
		}
	}
	return run.SetResult(at.Sum)
}

func main() {
	path := flag.String("db", "progress.db", "database file")
	flag.Parse()
	if err := progress(context.Background(), *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func progress(ctx context.Context, path string, out io.Writer) error {
	store, err := sqlite.Open(ctx, path, sqlite.Config{})
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
	durable.Register(w, sum(), perform)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }() // of another process, as likely

	client := durable.NewClient(store)
	receipt, err := sum().Enqueue(ctx, client, []int{1, 2, 3, 4, 5})
	if err != nil {
		return err
	}
	result, err := durable.Result[int](ctx, client, receipt.ID)
	if err != nil {
		return err // an *EndedError when the run is dead or cancelled
	}
	fmt.Fprintln(out, "result:", result)
	stop()
	if err := <-ended; err != nil {
		return err
	}

	record, err := store.Run(ctx, receipt.ID)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "progress: %.0f %%, %s\n", 100*record.Progress.Fraction, record.Progress.Note)
	for _, a := range record.Attempts {
		fmt.Fprintf(out, "attempt %d: %s\n", a.Number, a.Outcome)
		if a.Log != nil {
			fmt.Fprintln(out, "  its log:", *a.Log)
		}
	}
	return nil
}
