// Command drain is a deploy while work is going on: the worker that is told to
// stop lets a short run finish and hands a long one back, and the worker of the new
// version goes on with it where the old one stopped. No attempt is spent.
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
	"syscall"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// Copy is what the job's runs are about: parts to be copied, one after the other.
type Copy struct {
	Name  string `json:"name"`
	Parts int    `json:"parts"`
}

func job() durable.Job[Copy] { return durable.NewJob[Copy]("copy") }

func main() {
	path := flag.String("db", "drain.db", "database file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := drain(ctx, *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func drain(ctx context.Context, path string, out io.Writer) error {
	store, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		return err
	}
	client := durable.NewClient(store)
	receipts, err := client.Enqueue(ctx, job().New(Copy{Name: "short", Parts: 5}), job().New(Copy{Name: "long", Parts: 100}))
	if err != nil {
		return err
	}
	for _, version := range []string{"v1", "v2"} {
		working, deploy := context.WithCancel(ctx)
		err := work(working, store, deploy, version, out)
		deploy()
		if err != nil {
			return err
		}
	}
	records, err := client.Wait(ctx, receipts[0].ID, receipts[1].ID)
	for _, r := range records {
		fmt.Fprintf(out, "%s in attempt %d: %s\n", r.State, r.Attempt, r.Result)
	}
	return err
}

// work is one version's process. deploy ends it, as SIGTERM ends a program.
func work(ctx context.Context, store durable.Store, deploy func(), version string, out io.Writer) error {
	w := durable.NewWorker(store, durable.WorkerConfig{Name: version, DrainTimeout: 3 * time.Second})
	durable.Register(w, job(), func(ctx context.Context, run *durable.Run[Copy]) error {
		var done int
		if _, err := run.LastCheckpoint(ctx, &done); err != nil {
			return err
		}
		for done < run.Args.Parts {
			select {
			case <-time.After(40 * time.Millisecond): // a part is copied
			case <-ctx.Done():
				cause := context.Cause(ctx)
				fmt.Fprintf(out, "%s: %s stops early: %v\n", version, run.Args.Name, cause)
				return errors.Join(cause, run.Checkpoint(ctx, done))
			}
			if done++; version == "v1" && run.Args.Name == "long" && done == 2 {
				deploy() // while both are at work
			}
		}
		if run.Args.Name == "long" {
			defer deploy() // the example is over
		}
		return run.SetResult(version + " copied the last of " + fmt.Sprint(done) + " parts")
	})
	return w.Run(ctx)
}
