package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// growth is one thing of which there is more and more, and what it costs then.
type growth struct {
	name, title, across string
	sizes               []int
	figures             []figure
	drawn               []string // keys of the figures in the plot
	along               string
	// measure goes from size to size, smallest first, and tells each.
	measure func(ctx context.Context, b *bench, g *growth, tell func(size int, s sample)) error
}

func (g growth) row() row {
	var figures []figure
	for _, size := range g.sizes {
		for _, f := range g.figures {
			f.title += " at " + short(float64(size))
			f.key = fmt.Sprintf("%s-%d", f.key, size)
			figures = append(figures, f)
		}
	}
	measure := func(ctx context.Context, b *bench, _ string) (sample, error) {
		all := sample{}
		lines := make([]line, len(g.drawn))
		err := g.measure(ctx, b, &g, func(size int, s sample) {
			for key, value := range s {
				all[fmt.Sprintf("%s-%d", key, size)] = value
			}
			for i, key := range g.drawn {
				lines[i].x, lines[i].y = append(lines[i].x, float64(max(size, 1))), append(lines[i].y, s[key])
			}
		})
		if err != nil {
			return nil, err
		}
		p := plot{name: g.name, title: g.title, across: g.across, along: g.along, logarithmic: true}
		for i, key := range g.drawn {
			for _, f := range g.figures {
				if f.key == key {
					lines[i].name = f.title
				}
			}
			b.keep(p, lines[i])
		}
		return all, nil
	}
	return row{name: g.name, title: g.title, long: true, figures: figures, sides: []side{{name: ours, measure: measure}}}
}

func cycleFigures() []figure {
	return []figure{
		{key: "server", title: "server CPU", unit: "µs/run", less: true}, {key: "p50", title: "claim p50", unit: "ms", less: true},
		{key: "p99", title: "claim p99", unit: "ms", less: true},
	}
}

// fill measures claims of 100 while a place is filled more and more.
func fill(n int, more func(ctx context.Context, w *watch, first, n int) error) func(context.Context, *bench, *growth, func(int, sample)) error {
	return func(ctx context.Context, b *bench, g *growth, tell func(int, sample)) error {
		w, err := b.place(ctx, ours, onPostgres)
		if err != nil {
			return err
		}
		defer w.close()
		db, err := backend.Open(ctx, w.target, backend.Config{})
		if err != nil {
			return err
		}
		defer db.Close()
		have, sequence := 0, 0
		for _, size := range g.sizes {
			if err := more(ctx, w, have, size-have); err != nil {
				return err
			}
			have = size
			if err := w.due(ctx, jobName, 1<<32+sequence, n+2000); err != nil {
				return err
			}
			sequence += n + 2000
			if err := w.vacuum(ctx); err != nil {
				return err
			}
			if err := w.server.execute(ctx, "CHECKPOINT"); err != nil {
				return err
			}
			if _, err := cycles(ctx, w, db, 2000, 100); err != nil {
				return err
			}
			s, err := cycles(ctx, w, db, n, 100)
			if err != nil {
				return err
			}
			tell(size, s)
			fmt.Fprintf(b.progress, "%s %d: %v\n", g.name, size, s)
		}
		return nil
	}
}

// drains measures one drain for each size.
func drains(make func(size int) drain) func(context.Context, *bench, *growth, func(int, sample)) error {
	return func(ctx context.Context, b *bench, g *growth, tell func(int, sample)) error {
		for _, size := range g.sizes {
			d := make(size)
			d.label = fmt.Sprintf("%s-%d", g.name, size)
			s, err := b.drain(ctx, d)
			if err != nil {
				return err
			}
			tell(size, s)
			fmt.Fprintf(b.progress, "%s: %.0f/s, %.1f + %.1f µs/run\n", d.label, s["rate"], s["server"], s["go"])
		}
		return nil
	}
}

// schedules measures a cycle of materialization in which all are due, and a look
// when none is.
func schedules(ctx context.Context, b *bench, g *growth, tell func(int, sample)) error {
	for _, size := range g.sizes {
		s, err := b.schedules(ctx, size)
		if err != nil {
			return err
		}
		tell(size, s)
		fmt.Fprintf(b.progress, "%s %d: %v\n", g.name, size, s)
	}
	return nil
}

func (b *bench) schedules(ctx context.Context, n int) (sample, error) {
	w, err := b.place(ctx, ours, onPostgres)
	if err != nil {
		return nil, err
	}
	defer w.close()
	db, err := backend.Open(ctx, w.target, backend.Config{})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	job := durable.NewJob[args](jobName)
	if err := declareHourly(ctx, db, job.New(args{N: firstNumber}), n); err != nil {
		return nil, err
	}
	if err := errors.Join(w.vacuum(ctx), w.forget(ctx)); err != nil {
		return nil, err
	}
	fire := func(now time.Time, _ store.Schedule) store.Decision {
		one := job.New(args{N: firstNumber})
		return store.Decision{NextAt: now.Add(time.Hour), Occurrences: []store.Occurrence{{Key: now.String(), Run: one}}}
	}
	before, err := w.fast(ctx)
	if err != nil {
		return nil, err
	}
	longest, fired := time.Duration(0), 0
	began := time.Now()
	for {
		asked := time.Now()
		made, err := db.Materialize(ctx, scheduleChunk, fire)
		if err != nil {
			return nil, err
		}
		longest, fired = max(longest, time.Since(asked)), fired+len(made.Runs)
		if made.Due < scheduleChunk {
			break
		}
	}
	took := time.Since(began)
	after, err := w.fast(ctx)
	if err == nil && fired != n {
		err = fmt.Errorf("%d of %d schedules fired", fired, n)
	}
	if err != nil {
		return nil, err
	}
	b.noted(ctx, w, fmt.Sprintf("%d schedules", n))
	began = time.Now()
	const looks = 50
	for range looks {
		if _, err := db.Materialize(ctx, scheduleChunk, fire); err != nil {
			return nil, err
		}
	}
	return sample{
		"cycle": milliseconds(took), "each": micro(took) / float64(n), "server": micro(after.cpu-before.cpu) / float64(n),
		"longest": milliseconds(longest), "look": milliseconds(time.Since(began)) / looks,
	}, nil
}

// scheduleChunk is how many schedules are declared, or looked at, in one call.
const scheduleChunk = 1000

// declareHourly declares n schedules of one run.
func declareHourly(ctx context.Context, db store.Catalog, run durable.NewRun, n int) error {
	for done := 0; done < n; done += scheduleChunk {
		var some []store.Schedule
		for i := done; i < min(done+scheduleChunk, n); i++ {
			some = append(some, store.Schedule{Name: fmt.Sprintf("schedule-%d", i), Hash: "1", Rule: durable.Every(time.Hour),
				Job: run.Job, Queue: run.Queue, MaxAttempts: run.MaxAttempts, Args: run.Args})
		}
		if err := db.Declare(ctx, store.Declaration{Schedules: some}); err != nil {
			return err
		}
	}
	return nil
}

// scaleRows are what grows, and what a database carries.
func scaleRows(n, few int, quick bool) []row {
	backlog, finished, lanes, planned := []int{10_000, 100_000, 1_000_000, 5_000_000}, []int{0, 1_000_000, 5_000_000}, []int{1, 10, 100, 1000}, []int{100, 1000, 10_000, 100_000}
	most, cycled := 5_000_000, 50_000
	if quick {
		backlog, finished, lanes, planned = []int{10_000, 100_000}, []int{0, 100_000}, []int{1, 10, 100}, []int{100, 1000, 10_000}
		most, cycled = 200_000, 10_000
	}
	costing := []figure{{key: "server", title: "server CPU", unit: "µs/run", less: true}, {key: "go", title: "Go CPU", unit: "µs/run", less: true},
		{key: "rate", title: "throughput", unit: "/s"}}
	all := []growth{
		{name: "growth-backlog", title: "claims of 100 with more and more runs due", across: "due runs", sizes: backlog, figures: cycleFigures(),
			drawn: []string{"server", "p50", "p99"}, along: "µs/run, ms",
			measure: fill(cycled, func(ctx context.Context, w *watch, first, n int) error { return w.due(ctx, jobName, first, n) })},
		{name: "growth-finished", title: "claims of 100 with more and more runs that have ended", across: "ended runs", sizes: finished, figures: cycleFigures(),
			drawn: []string{"server", "p50", "p99"}, along: "µs/run, ms",
			measure: fill(cycled, func(ctx context.Context, w *watch, first, n int) error { return w.ended(ctx, first, n) })},
		{name: "growth-workers", title: fmt.Sprintf("drain %d runs with more and more processes of 100 handlers", n), across: "processes", sizes: []int{1, 2, 4, 8}, figures: costing,
			drawn: []string{"server", "go"}, along: "µs/run",
			measure: drains(func(size int) drain { return drain{worker: spec{Contender: ours}, n: n, processes: size} })},
		{name: "growth-lanes", title: fmt.Sprintf("drain %d runs of more and more jobs", n), across: "lanes", sizes: lanes, figures: costing,
			drawn: []string{"server", "go"}, along: "µs/run",
			measure: drains(func(size int) drain { return drain{worker: spec{Contender: ours, Lanes: size}, n: n} })},
		{name: "growth-schedules", title: "materialize more and more schedules that are all due at the same time", across: "schedules", sizes: planned,
			figures: []figure{{key: "each", title: "time", unit: "µs/schedule", less: true}, {key: "server", title: "server CPU", unit: "µs/schedule", less: true},
				{key: "cycle", title: "all of them", unit: "ms", less: true}, {key: "longest", title: "longest transaction", unit: "ms", less: true}, {key: "look", title: "a look when none is due", unit: "ms", less: true}},
			drawn: []string{"each", "server"}, along: "µs/schedule", measure: schedules},
	}
	list := []row{backlogRow(most), crashRow(200), poolerRow(n), leasesRow(), sqliteTwoRow(5 * few), memoryRow(cycled / 5)}
	for _, g := range all {
		list = append(list, g.row())
	}
	return list
}
