package main

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/backend"
)

// pairs stores runs and, for each, one that depends on it.
func pairs(ctx context.Context, w *watch, n int) error {
	db, err := backend.Open(ctx, w.target, backend.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	client, source, follower := durable.NewClient(db), durable.NewJob[args](jobName), durable.NewJob[args](followerJob)
	const batch = 1000
	for done := 0; done < n; done += batch {
		var runs []durable.NewRun
		for i := range min(batch, n-done) {
			number := args{N: int64(firstNumber + done + i)}
			first := source.New(number)
			runs = append(runs, first, follower.New(number, durable.DependsOn(durable.OnSuccess(first.ID))))
		}
		if _, err := client.Enqueue(ctx, runs...); err != nil {
			return fmt.Errorf("load pairs: %w", err)
		}
	}
	return nil
}

// twice takes a drain of pairs of runs beside one of plain runs, and tells what a pair costs.
func twice(name string, linked, plain drain) side {
	return side{name: name, measure: func(ctx context.Context, b *bench, label string) (sample, error) {
		plain.label, linked.label = label+"-plain", label
		reference, err := b.drain(ctx, plain)
		if err != nil {
			return nil, err
		}
		found, err := b.drain(ctx, linked)
		if err != nil {
			return nil, err
		}
		found["share"], found["times"] = 100*found["rate"]/reference["rate"], found["server"]/reference["server"]
		found["both"] = found["cpu"] / reference["cpu"]
		found["plain"] = reference["server"]
		return found, nil
	}}
}

// linkRows are children, and runs that depend on others.
func linkRows(n int, quick bool) []row {
	rounds, many, lead := 20, 100_000, 60*time.Second
	if quick {
		rounds, many, lead = 5, 5000, 8*time.Second
	}
	call := tuned(ours)
	call.Flow = calling
	chain := tuned(ours)
	chain.Flow = following
	cost := func(more ...figure) []figure {
		return append(more, append([]figure{{key: "plain", title: "server CPU of plain runs beside", unit: "µs/run", less: true}}, unbounded(costs())...)...)
	}
	fanned := func(name, title string, f fan, figures ...figure) row {
		measure := f.measure
		if f.followers == many {
			measure = f.many
		}
		return row{name: name, title: title, figures: figures, long: f.followers == many && !quick,
			sides: []side{{name: ours, measure: func(ctx context.Context, b *bench, _ string) (sample, error) { return measure(ctx, b) }}}}
	}
	return []row{
		{name: "call", title: fmt.Sprintf("drain %d parents that call one child each, beside twice as many plain runs", n/2),
			figures: cost(figure{key: "times", title: "server CPU of two plain runs", unit: "×", less: true, bound: 3.5}, figure{key: "both", title: "CPU of two plain runs", unit: "×", less: true}, rate(0)),
			sides: []side{twice("calls", drain{worker: call, n: n, fill: func(ctx context.Context, w *watch) error { return loadPlain(ctx, w, n/2) }},
				drain{worker: tuned(ours), n: n})}},
		{name: "chain", title: fmt.Sprintf("drain %d pairs of a run and one that depends on it, beside as many plain runs", n),
			figures: cost(rate(0), figure{key: "share", title: "of plain runs", unit: "%", bound: 40}, figure{key: "times", title: "server CPU of plain runs", unit: "×", less: true}),
			sides: []side{twice("pairs", drain{worker: chain, n: 2 * n, fill: func(ctx context.Context, w *watch) error { return pairs(ctx, w, n) }},
				drain{worker: tuned(ours), n: 2 * n})}},
		fanned("chain-latency", "from the return of a run until the one that depends on it begins, a pair each 20 ms",
			fan{sources: 1, followers: 1, rounds: 25 * rounds, apart: 20 * time.Millisecond}, lateness(3, 15)...),
		fanned("fan-out-1000", "from the return of a run until the last of 1000 that depend on it", fan{sources: 1, followers: 1000, rounds: rounds, lead: time.Second},
			append([]figure{{key: "released", title: "has been released, p50", unit: "ms", less: true, bound: 60}}, begins(0)...)...),
		fanned("fan-in-1000", "from the last return of 1000 runs until the one that depends on all of them begins", fan{sources: 1000, followers: 1, rounds: rounds, lead: time.Second},
			append([]figure{{key: "all", title: "from the first beginning on, p50", unit: "ms", less: true, bound: 100}}, begins(0)...)...),
		fanned("fan-out-100k", fmt.Sprintf("from the return of a run until the last of %d that depend on it", many), fan{sources: 1, followers: many, lead: lead},
			figure{key: "released", title: "has been released", unit: "s", less: true}, figure{key: "begun", title: "has begun", unit: "s", less: true},
			figure{key: "longest", title: "longest transaction", unit: "ms", less: true, bound: 50}, figure{key: "left", title: fmt.Sprintf("the least that was left of a lease of %v", fanLease), unit: "s", bound: 1},
			figure{key: "stored", title: "to store them", unit: "s", less: true}),
	}
}

// begins are lateness of what begins last.
func begins(p50 float64) []figure {
	list := lateness(p50, 0)
	for i := range list {
		list[i].title = "begins, " + list[i].title
	}
	return list
}

// loadPlain stores n plain runs.
func loadPlain(ctx context.Context, w *watch, n int) error {
	return (&bench{}).load(ctx, w, spec{Contender: ours}, n)
}
