// Command nightly extracts, transforms and loads the figures of a day: three runs in a row, each
// stored with what must come before it, and an alarm in case that one of them fails.
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
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// Day is the day that figures are of.
type Day struct {
	Day string `json:"day"`
}

// Rest is a day, and the run that has the figures so far.
type Rest struct {
	Day  string        `json:"day"`
	From durable.RunID `json:"from"`
}

// Figures are what is extracted, and transformed.
type Figures []int

func extract() durable.ReturningJob[Day, Figures] {
	return durable.Returning[Figures](durable.NewJob[Day]("extract", durable.Timeout(time.Minute)))
}

func transform() durable.ReturningJob[Rest, Figures] {
	return durable.Returning[Figures](durable.NewJob[Rest]("transform", durable.Timeout(time.Minute)))
}

func load() durable.Job[Rest] { return durable.NewJob[Rest]("load", durable.Timeout(time.Minute)) }

func alarm() durable.Job[Day] { return durable.NewJob[Day]("alarm", durable.Timeout(time.Minute)) }

// Night is what is enqueued for a day.
type Night struct{ Extract, Transform, Load, Alarm durable.NewRun }

// night makes the runs of a day. Their ids are known before any of them is stored.
func night(day string) Night {
	var n Night
	n.Extract = extract().New(Day{day})
	n.Transform = transform().New(Rest{day, n.Extract.ID}, durable.DependsOn(durable.OnSuccess(n.Extract.ID)))
	n.Load = load().New(Rest{day, n.Transform.ID}, durable.DependsOn(durable.OnSuccess(n.Transform.ID)))
	n.Alarm = alarm().New(Day{day}, durable.DependsOn(durable.OnFailure(n.Extract.ID, n.Transform.ID, n.Load.ID)))
	return n
}

// enqueue stores all of them or none.
func (n Night) enqueue(ctx context.Context, to store.Enqueuer) error {
	_, err := to.Enqueue(ctx, n.Extract, n.Transform, n.Load, n.Alarm)
	return err
}

// warehouse is where figures come from and go to.
type warehouse interface {
	Read(ctx context.Context, day string) (Figures, error)
	Write(ctx context.Context, day string, figures Figures) error
	Alarm(ctx context.Context, day string) error
}

// handlers are the handlers of the jobs.
type handlers struct{ warehouse warehouse }

func (h handlers) register(w *durable.Worker) {
	durable.RegisterReturning(w, extract(), func(ctx context.Context, run *durable.Run[Day]) (Figures, error) {
		return h.warehouse.Read(ctx, run.Args.Day)
	})
	durable.RegisterReturning(w, transform(), func(ctx context.Context, run *durable.Run[Rest]) (Figures, error) {
		figures, err := extract().ResultOf(ctx, run, run.Args.From)
		slices.Sort(figures)
		return figures, err
	})
	durable.Register(w, load(), func(ctx context.Context, run *durable.Run[Rest]) error {
		figures, err := transform().ResultOf(ctx, run, run.Args.From)
		if err != nil {
			return err
		}
		return h.warehouse.Write(ctx, run.Args.Day, figures)
	})
	durable.Register(w, alarm(), func(ctx context.Context, run *durable.Run[Day]) error {
		return h.warehouse.Alarm(ctx, run.Args.Day)
	})
}

// printing is a warehouse that has no figures of Sunday until it is mended.
type printing struct {
	out    io.Writer
	mended bool
}

// Read reads figures.
func (p *printing) Read(_ context.Context, day string) (Figures, error) {
	if day == "Sunday" && !p.mended {
		return nil, durable.Permanent(errors.New("no figures"))
	}
	return Figures{3, 1, 2}, nil
}

// Write writes figures.
func (p *printing) Write(_ context.Context, day string, figures Figures) error {
	_, err := fmt.Fprintf(p.out, "%s: loaded %v\n", day, figures)
	return err
}

// Alarm has the warehouse mended.
func (p *printing) Alarm(_ context.Context, day string) error {
	p.mended = true
	_, err := fmt.Fprintf(p.out, "%s: alarm\n", day)
	return err
}

func main() {
	path := flag.String("db", "nightly.db", "database file")
	flag.Parse()
	if err := play(context.Background(), *path, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// play enqueues two nights. The second one fails, and is retried when it is mended.
func play(ctx context.Context, path string, out io.Writer) error {
	db, err := sqlite.Open(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Migrate(ctx); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	w := durable.NewWorker(db, durable.WorkerConfig{})
	handlers{&printing{out: out}}.register(w)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()

	client := durable.NewClient(db)
	saturday, sunday := night("Saturday"), night("Sunday")
	for _, n := range []Night{saturday, sunday} {
		if err := n.enqueue(ctx, client); err != nil {
			return err
		}
		if _, err := client.Wait(ctx, n.Alarm.ID); err != nil { // it is cancelled when all have succeeded
			return err
		}
	}
	records, err := db.Run(ctx, sunday.Load.ID)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "Sunday: load is", records.State)
	operator := operate.New(db, operate.Config{})
	defer operator.Close()
	retry := store.RunCommand{Action: store.RetryRuns, Runs: []durable.RunID{sunday.Extract.ID}} // as the command runs retry does
	if _, err := operator.As("ann").Change(ctx, retry); err != nil {
		return err
	}
	if _, err := client.Wait(ctx, sunday.Load.ID); err != nil {
		return err
	}
	stop()
	return <-ended
}
