package durable_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/memory"
)

type greeting struct {
	Name string `json:"name"`
}

var greet = durable.NewJob[greeting]("greet", durable.Timeout(time.Minute))

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	store := memory.New(memory.Config{}) // or postgres.Open, sqlite.Open, backend.Open
	_, err := greet.Enqueue(ctx, durable.NewClient(store), greeting{Name: "world"})
	if err != nil {
		fmt.Println(err)
	}
	w := durable.NewWorker(store, durable.WorkerConfig{})
	durable.Register(w, greet, func(_ context.Context, run *durable.Run[greeting]) error {
		fmt.Println("hello,", run.Args.Name)
		cancel() // an example stops after its first run
		return nil
	})
	fmt.Println(w.Run(ctx))
	// Output:
	// hello, world
	// <nil>
}

func ExampleClient_Enqueue() {
	ctx := context.Background()
	store := memory.New(memory.Config{})
	client := durable.NewClient(store)
	receipts, err := client.Enqueue(ctx, // one statement for thousands
		greet.New(greeting{Name: "ann"}),
		greet.New(greeting{Name: "bob"}, durable.After(time.Hour), durable.Priority(2)),
	)
	fmt.Println(len(receipts), err)

	run := greet.New(greeting{Name: "eve"})
	for range 2 { // the answer to the first was lost, say
		receipts, err = client.Enqueue(ctx, run)
		fmt.Println(receipts[0].Existing, err)
	}
	// Output:
	// 2 <nil>
	// false <nil>
	// true <nil>
}

func ExamplePermanent() {
	store := memory.New(memory.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	receipt, _ := greet.Enqueue(ctx, durable.NewClient(store), greeting{})
	w := durable.NewWorker(store, durable.WorkerConfig{})
	durable.Register(w, greet, func(_ context.Context, run *durable.Run[greeting]) error {
		defer cancel()
		if run.Args.Name == "" {
			return durable.Permanent(errors.New("no one to greet")) // no retry can help
		}
		return nil
	})
	_ = w.Run(ctx)
	record, _ := store.Run(context.Background(), receipt.ID)
	fmt.Println(record.State, *record.Error)
	// Output: dead no one to greet
}

func ExampleAddSchedule() {
	w := durable.NewWorker(memory.New(memory.Config{}), durable.WorkerConfig{})
	durable.Register(w, greet, func(context.Context, *durable.Run[greeting]) error { return nil })
	durable.AddSchedule(w, "good-morning", greet, greeting{Name: "team"}, durable.Cron("0 9 * * 1-5", "Europe/Berlin"))
	durable.AddSchedule(w, "too-often", greet, greeting{Name: "team"}, durable.Every(10*time.Millisecond))
	fmt.Println(w.Faults())
	// Output: schedule "too-often": interval 10ms: want 1s to 100 years in whole microseconds, such as 30s
}

type invoiceArgs struct {
	Number int `json:"number"`
}

func invoice() durable.Job[invoiceArgs] {
	return durable.NewJob[invoiceArgs]("invoice", durable.Timeout(time.Minute), durable.MaxAttempts(10))
}

func ExampleMaxAttempts() {
	policy := durable.Exponential(5*time.Second, time.Hour) // the default, without its jitter
	var total time.Duration
	for failed := 1; failed < invoice().Info().MaxAttempts; failed++ {
		total += policy.Delay(failed, nil)
	}
	fmt.Println("the last attempt begins", total, "after the first has failed")
	// Output: the last attempt begins 42m35s after the first has failed
}

func ExampleBackoff() {
	policy := durable.Exponential(5*time.Second, time.Minute)
	for attempt := 1; attempt <= 5; attempt++ {
		fmt.Print(policy.Delay(attempt, nil), " ")
	}
	// Output: 5s 10s 20s 40s 1m0s
}
