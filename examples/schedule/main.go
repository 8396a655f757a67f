// Command schedule declares a nightly report, and shows what happens to it when
// the clock is set forward, while no worker is there, and when an operator takes a
// hand. The clock of its store is set by hand: a week takes a moment.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

func report() durable.Job[string] {
	return durable.NewJob[string]("report", durable.Timeout(10*time.Minute))
}

// declare is what every worker of a program does when it starts.
func declare(w *durable.Worker) {
	durable.AddSchedule(w, "nightly", report(), "sales", durable.Cron("30 2 * * *", "Europe/Berlin"),
		durable.CatchUp(durable.CatchUpLatest, 0, 0), // of the nights that were missed, only the last
		durable.Overlap(durable.OverlapSkip))         // not while an earlier one has not ended; the default
}

func main() {
	if err := schedule(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func schedule(ctx context.Context, out io.Writer) error {
	clock := &hands{}
	db := memory.New(memory.Config{Clock: clock.read})
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		return err
	}
	clock.set("2030-03-29T12:00:00Z")
	var next []time.Time
	err = work(ctx, db, out, func() bool {
		records, err := db.ListSchedules(ctx, "nightly")
		if err != nil || len(records) == 0 || records[0].NextAt == nil {
			return false // not declared and planned yet
		}
		planned := records[0].Schedule()
		next, _ = planned.Preview(clock.read(), 3)
		return true
	})
	for _, at := range next {
		fmt.Fprintln(out, "next", at.In(berlin).Format("Mon 2 Jan 15:04 MST"))
	}
	if err != nil {
		return err
	}

	// No worker is there for five nights. Then one starts.
	clock.set("2030-04-03T06:00:00Z")
	if err := work(ctx, db, out, succeeded(ctx, db, 1)); err != nil {
		return err
	}

	// An operator wants one now, and then none any more.
	err = db.RunSchedule(ctx, "nightly", durable.NewRunID(), durable.OverlapSkip, "ada")
	if err := errors.Join(err, db.ChangeSchedule(ctx, "nightly", store.PauseSchedule, "ada")); err != nil {
		return err
	}
	clock.set("2030-04-05T06:00:00Z")
	if err := work(ctx, db, out, succeeded(ctx, db, 2)); err != nil {
		return err
	}
	past, err := db.ScheduleHistory(ctx, "nightly", 10)
	for _, line := range past {
		if line.Kind == store.HistorySkip {
			fmt.Fprintln(out, "skipped", line.First.In(berlin).Format("2 Jan"), "to", line.At.In(berlin).Format("2 Jan:"), *line.Reason)
		}
	}
	return err
}

// work has a worker there until done says so.
func work(ctx context.Context, store durable.Store, out io.Writer, done func() bool) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	w := durable.NewWorker(store, durable.WorkerConfig{})
	durable.Register(w, report(), func(_ context.Context, run *durable.Run[string]) error {
		if night, ok := run.Occurrence(); ok { // in Berlin, however late the run is, and at every attempt
			fmt.Fprintln(out, "report on", run.Args, "of the night of", night.Format("2 Jan"))
		} else {
			fmt.Fprintln(out, "report on", run.Args, "as requested")
		}
		return nil
	})
	declare(w)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil && !done(); {
		<-tick.C
	}
	stop()
	return <-ended
}

func succeeded(ctx context.Context, store durable.Store, n int64) func() bool {
	return func() bool {
		counts, err := store.Counts(ctx)
		return err == nil && counts[durable.Succeeded].N >= n
	}
}

// hands are those of a clock that is set by hand.
type hands struct{ unix atomic.Int64 }

func (h *hands) read() time.Time { return time.Unix(h.unix.Load(), 0) }

func (h *hands) set(text string) {
	t, _ := time.Parse(time.RFC3339, text)
	h.unix.Store(t.Unix())
}
