// Command saga books a trip of three parts. When a part fails for good, those before it are
// cancelled, the last first, each tried until it is done.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// Trip is what is booked.
type Trip struct {
	City string `json:"city"`
}

func trip() durable.Job[Trip] {
	return durable.NewJob[Trip]("trip", durable.Timeout(time.Minute), durable.EachStep(durable.StepAttempts(3, durable.Fixed(10*time.Millisecond))))
}

// untilDone is for what must be undone: ten thousand tries, which take more than a year.
func untilDone(first time.Duration) durable.StepOption {
	return durable.StepAttempts(10_000, durable.Exponential(first, time.Hour))
}

// agency books and cancels. It recognises a repeat by its key.
type agency interface {
	Book(ctx context.Context, key, part, city string) (booking string, err error)
	Cancel(ctx context.Context, booking string) error
}

// saga is what the handler needs.
type saga struct {
	agency agency
	pause  time.Duration // after the first try of a cancellation that has failed
}

// handle books all parts or none.
func (s saga) handle(ctx context.Context, run *durable.Run[Trip]) error {
	var booked []string
	for _, part := range []string{"flight", "hotel", "car"} {
		step := "book " + part
		booking, err := durable.Step(ctx, run, step, func(ctx context.Context) (string, error) {
			return s.agency.Book(ctx, run.StepKey(step), part, run.Args.City)
		})
		if durable.Final(err) { // recorded: no later execution sees it succeed
			return s.undo(ctx, run, booked, err)
		}
		if err != nil { // put back, to be tried again, or interrupted: nothing is decided
			return err
		}
		booked = append(booked, booking)
	}
	return run.SetResult(booked)
}

// undo cancels what is booked, and then the run is dead with the failure.
func (s saga) undo(ctx context.Context, run *durable.Run[Trip], booked []string, failure error) error {
	for _, booking := range slices.Backward(booked) {
		_, err := durable.Step(ctx, run, "cancel "+booking, func(ctx context.Context) (bool, error) {
			return true, s.agency.Cancel(ctx, booking)
		}, untilDone(s.pause))
		if err != nil {
			return err
		}
	}
	return durable.Permanent(failure)
}

// shaky is an agency that has no car in Rome, and whose first cancellation of a hotel fails.
type shaky struct {
	out    io.Writer
	failed bool
}

// Book books a part.
func (a *shaky) Book(_ context.Context, _, part, city string) (string, error) {
	if part == "car" && city == "Rome" {
		return "", durable.Permanent(errors.New("no car in Rome"))
	}
	fmt.Fprintf(a.out, "%s: %s booked\n", city, part)
	return part + " in " + city, nil
}

// Cancel cancels a booking.
func (a *shaky) Cancel(_ context.Context, booking string) error {
	if !a.failed {
		a.failed = true
		fmt.Fprintln(a.out, booking, "not cancelled: the agency does not answer")
		return errors.New("the agency does not answer")
	}
	fmt.Fprintln(a.out, booking, "cancelled")
	return nil
}

func main() {
	path := flag.String("db", "saga.db", "database file")
	flag.Parse()
	if err := play(context.Background(), *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// play books two trips, of which one fails.
func play(ctx context.Context, path string, out io.Writer) error {
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
	durable.Register(w, trip(), saga{&shaky{out: out}, 20 * time.Millisecond}.handle)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()

	client := durable.NewClient(store)
	for _, city := range []string{"Paris", "Rome"} {
		receipt, err := trip().Enqueue(ctx, client, Trip{City: city})
		if err != nil {
			return err
		}
		records, err := client.Wait(ctx, receipt.ID)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "the run of", city, "is", records[0].State)
	}
	stop()
	return <-ended
}
