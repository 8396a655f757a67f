package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// args are those of all jobs.
type args struct {
	Name     string `json:"name"`
	Children int    `json:"children,omitempty"` // how many more follow, one by one
	Until    string `json:"until,omitempty"`    // a file: the handler waits until it is there
}

var (
	note  = durable.NewJob[args]("note")
	flaky = durable.NewJob[args]("flaky", durable.Retry(durable.Fixed(100*time.Millisecond)))
	hold  = durable.NewJob[args]("hold")
	tick  = durable.NewJob[args]("tick")
)

// errFirst is how each run of flaky fails once.
var errFirst = errors.New("the first attempt fails")

// runsEach is how many runs of note and of flaky one call enqueues.
const runsEach = 20

// enqueue enqueues in each way that a program has: many together, one by one, in a
// transaction, and under a unique key.
func enqueue(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, prefix string) error {
	client := durable.NewClient(store)
	var runs []durable.NewRun
	for n := range runsEach {
		runs = append(runs, note.New(args{Name: fmt.Sprintf("%s-%d", prefix, n), Children: 1}))
	}
	if _, err := client.Enqueue(ctx, runs...); err != nil {
		return err
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // a no-op after the commit
	for n := range runsEach {
		if _, err := flaky.Enqueue(ctx, store.WithTx(tx), args{Name: fmt.Sprintf("%s-flaky-%d", prefix, n)}); err != nil {
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	until := os.Getenv("ROLLING_UNTIL")
	if _, err := hold.Enqueue(ctx, client, args{Name: "once", Until: until}, durable.Unique("once")); err != nil {
		return err
	}
	for n := range 3 {
		if _, err := hold.Enqueue(ctx, client, args{Name: fmt.Sprintf("%s-hold-%d", prefix, n), Until: until}); err != nil {
			return err
		}
	}
	return nil
}

// handlers write down what they did, in the table effects.
type handlers struct {
	pool   *pgxpool.Pool
	store  *postgres.Store
	worker string
}

func (h handlers) register(w *durable.Worker) {
	durable.Register(w, note, h.complete)
	durable.Register(w, tick, h.complete)
	durable.Register(w, flaky, func(ctx context.Context, run *durable.Run[args]) error {
		if run.Attempt == 1 {
			return errFirst
		}
		return h.complete(ctx, run)
	})
	durable.Register(w, hold, func(ctx context.Context, run *durable.Run[args]) error {
		for {
			if _, err := os.Stat(run.Args.Until); err == nil {
				return h.complete(ctx, run)
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	durable.AddSchedule(w, "tick", tick, args{Name: "tick"}, durable.Every(time.Second))
	h.registerLimited(w)
}

// complete writes the effect, enqueues the child and completes the run, in one
// transaction.
func (h handlers) complete(ctx context.Context, run *durable.Run[args]) error {
	tx, err := h.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // a no-op after the commit
	if _, err := tx.Exec(ctx, "insert into effects (name, worker) values ($1, $2)", run.Args.Name, h.worker); err != nil {
		return err
	}
	if run.Args.Children > 0 {
		child := args{Name: run.Args.Name + "-child", Children: run.Args.Children - 1}
		if _, err := note.Enqueue(ctx, h.store.WithTx(tx), child); err != nil {
			return err
		}
	}
	if err := run.CompleteIn(ctx, h.store.WithTx(tx)); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
