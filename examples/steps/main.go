// Command steps is a trip that is booked in steps, approved by a person, and undone when the hotel
// has no room. The handlers' finished parts are not executed again.
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

// Trip is what is booked.
type Trip struct {
	City  string `json:"city"`
	Rooms int    `json:"rooms"` // that the hotel has left
}

// Approval is what a person sends.
type Approval struct {
	By string `json:"by"`
}

func trip() durable.Job[Trip] {
	return durable.NewJob[Trip]("trip", durable.Timeout(time.Minute), durable.EachStep(durable.StepAttempts(3, durable.Fixed(10*time.Millisecond))))
}

// agency is what the steps have effects on.
type agency struct{ out io.Writer }

func (a agency) book(what string, rooms int) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		fmt.Fprintln(a.out, "booking a", what)
		if rooms == 0 {
			return "", durable.Permanent(errors.New("no room left"))
		}
		return what + "-1", nil
	}
}

func (a agency) cancel(booking string) func(context.Context) (bool, error) {
	return func(context.Context) (bool, error) {
		fmt.Fprintln(a.out, "cancelling", booking)
		return true, nil
	}
}

// handle books a trip. It is executed again after each wait; its steps are not.
func (a agency) handle(ctx context.Context, run *durable.Run[Trip]) error {
	ok, err := durable.Receive[Approval](ctx, run, "approved", 7*24*time.Hour)
	if err != nil {
		return err
	}
	flight, err := durable.Step(ctx, run, "flight", a.book("flight", 1))
	if err != nil {
		return err
	}
	if err := run.Sleep(ctx, "the hotel opens", 50*time.Millisecond); err != nil {
		return err
	}
	hotel, err := durable.Step(ctx, run, "hotel", a.book("room", run.Args.Rooms))
	if failed := err; durable.Final(failed) {
		if _, err := durable.Step(ctx, run, "cancel flight", a.cancel(flight), durable.StepAttempts(100)); err != nil {
			return err
		}
		return durable.Permanent(failed)
	}
	if err != nil {
		return err
	}
	return run.SetResult(fmt.Sprintf("%s and %s, approved by %s", flight, hotel, ok.By))
}

func main() {
	path := flag.String("db", "steps.db", "database file")
	flag.Parse()
	if err := book(context.Background(), *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func book(ctx context.Context, path string, out io.Writer) error {
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
	durable.Register(w, trip(), agency{out}.handle)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()

	client := durable.NewClient(store)
	for _, args := range []Trip{{City: "Paris", Rooms: 2}, {City: "Rome"}} {
		receipt, err := trip().Enqueue(ctx, client, args)
		if err != nil {
			return err
		}
		if _, err := trip().Send(ctx, client, receipt.ID, "approved", Approval{By: "eva"}); err != nil {
			return err
		}
		result, err := durable.Result[string](ctx, client, receipt.ID)
		if failed := new(durable.EndedError); errors.As(err, &failed) {
			fmt.Fprintln(out, args.City+":", failed.State)
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(out, args.City+":", result)
	}
	stop()
	return <-ended
}
