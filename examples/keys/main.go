// Command keys stores the same thing once: a signup that is sent twice, and one
// new index for a burst of changes.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func main() {
	path := flag.String("db", "keys.db", "database file")
	flag.Parse()
	if err := keys(context.Background(), *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func keys(ctx context.Context, path string, out io.Writer) error {
	store, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	client, welcome, index := durable.NewClient(store), durable.NewJob[string]("welcome"), durable.NewJob[int]("index")

	for range 2 { // the button was pressed twice
		receipt, err := welcome.Enqueue(ctx, client, "ada", durable.Unique("user:42"))
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "welcome, existing:", receipt.Existing)
	}
	for change := range 5 { // due when nothing has changed for 300 ms, or after 2 s at the latest
		receipt, err := index.Enqueue(ctx, client, change, durable.Debounce("page:7", 300*time.Millisecond, 2*time.Second))
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "index, existing:", receipt.Existing)
	}

	working, done := context.WithCancel(ctx)
	defer done()
	var left atomic.Int32
	left.Store(2)
	w := durable.NewWorker(store, durable.WorkerConfig{MaxConcurrentRuns: 1}) // one after the other, to print what they do
	durable.Register(w, welcome, func(_ context.Context, run *durable.Run[string]) error {
		fmt.Fprintln(out, "welcome", run.Args)
		if left.Add(-1) == 0 {
			done()
		}
		return nil
	})
	durable.Register(w, index, func(_ context.Context, run *durable.Run[int]) error {
		fmt.Fprintln(out, "index of change", run.Args)
		if left.Add(-1) == 0 {
			done()
		}
		return nil
	})
	if err := w.Run(working); err != nil {
		return err
	}
	again, err := welcome.Enqueue(ctx, client, "ada", durable.Unique("user:42"))
	fmt.Fprintln(out, "the first has ended; welcome, existing:", again.Existing)
	return err
}
