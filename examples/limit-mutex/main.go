// Command limit-mutex posts to accounts, one posting at a time to each, in the order in
// which they were enqueued, while different accounts continue concurrently.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// PostingArgs are stored with each run as JSON.
type PostingArgs struct {
	Account string `json:"account"`
	Number  int    `json:"number"`
}

// Account is held by one posting at a time, until it has ended for good: the next one
// does not overtake a posting that is retried.
var Account = durable.NewLimit("account", durable.Mutex())

var post = durable.NewJob[PostingArgs]("post", durable.Retry(durable.Fixed(20*time.Millisecond)),
	durable.Limited(Account, durable.KeyOf("{account}"), durable.Until(store.UntilFinished)))

func main() {
	if err := accounts(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func accounts(ctx context.Context, out io.Writer) error {
	db := memory.New(memory.Config{})
	var mu sync.Mutex
	posted := map[string][]int{}
	var all sync.WaitGroup
	all.Add(10)
	worker := durable.NewWorker(db, durable.WorkerConfig{MaxConcurrentRuns: 10})
	durable.Register(worker, post, func(_ context.Context, run *durable.Run[PostingArgs]) error {
		if run.Args.Number == 2 && run.Attempt == 1 {
			return errors.New("the ledger is locked")
		}
		mu.Lock()
		defer mu.Unlock()
		posted[run.Args.Account] = append(posted[run.Args.Account], run.Args.Number)
		all.Done()
		return nil
	})
	working, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = worker.Run(working) })
	defer running.Wait()
	defer stop()
	for !worker.Status().Ready { // it has declared the limit
		time.Sleep(time.Millisecond)
	}

	var runs []durable.NewRun
	for number := 1; number <= 5; number++ {
		runs = append(runs, post.New(PostingArgs{"ada", number}), post.New(PostingArgs{"bob", number}))
	}
	if _, err := durable.NewClient(db).Enqueue(ctx, runs...); err != nil {
		return err
	}
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	for _, account := range []string{"ada", "bob"} {
		fmt.Fprintln(out, account, posted[account])
	}
	return nil
}
