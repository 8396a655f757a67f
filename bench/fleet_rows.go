package main

import (
	"context"
	"fmt"
	"time"
)

func fleetFigures() []figure {
	return []figure{
		{key: "server", title: "server CPU", unit: "ms/s", less: true, ratio: 1.25}, {key: "each", title: "server CPU", unit: "ms/run", less: true},
		{key: "go", title: "workers' CPU", unit: "ms/run", less: true},
		{key: "commits", title: "transactions", unit: "/s", less: true}, {key: "claims", title: "claims", unit: "/run", less: true, bound: 2},
		{key: "p50", title: "from enqueue to start, p50", unit: "ms", less: true, ratio: 1}, {key: "p99", title: "p99", unit: "ms", less: true, ratio: 1},
		{key: "rate", title: "enqueued", unit: "/s"}, {key: "connections", title: "connections", unit: "/worker", less: true, plain: true},
	}
}

// fleetRows are fleets at moderate rates, with every setting its default.
func fleetRows(quick bool) []row {
	window := 15 * time.Second
	if quick {
		window = 6 * time.Second
	}
	beside := func(f fleet, names ...string) []side {
		var sides []side
		for _, name := range names {
			f := f
			if name == redis {
				f.on = onRedis
			}
			sides = append(sides, side{name: name, measure: func(ctx context.Context, b *bench, label string) (sample, error) {
				return f.measure(ctx, b, name, label)
			}})
		}
		return sides
	}
	var all []row
	for _, f := range []fleet{{workers: 1, rate: 20}, {workers: 1, rate: 100}, {workers: 1, rate: 500}, {workers: 20, rate: 20}, {workers: 20, rate: 100},
		{workers: 20, rate: 500}, {workers: 50, rate: 20}, {workers: 50, rate: 100}, {workers: 50, rate: 500}} {
		f.window = window
		all = append(all, row{name: fmt.Sprintf("fleet-%d-%d", f.workers, f.rate), long: true, figures: fleetFigures(), sides: beside(f, ours, river, redis),
			title: fmt.Sprintf("%d workers with connections of their own, %d single enqueues a second, defaults", f.workers, f.rate)})
	}
	f := fleet{workers: 20, rate: 100, window: window}
	polling, pooled := f, f
	polling.poll, pooled.pooled = true, true
	all = append(all,
		row{name: "fleet-poll", long: true, figures: fleetFigures(), sides: beside(polling, ours, river),
			title: "20 workers that only poll, 100 single enqueues a second, defaults"},
		row{name: "fleet-pooled", long: true, figures: fleetFigures(), sides: beside(pooled, ours, river),
			title: "20 workers that only poll behind a PgBouncer in transaction mode, 100 single enqueues a second, defaults"},
		sqliteFleets(window))
	kinds := row{name: "fleet-kinds", long: true, figures: fleetFigures(), title: "one worker, 100 single enqueues a second of 1, 50 or 300 kinds of jobs in turn"}
	for _, n := range []int{1, 50, 300} {
		f := fleet{workers: 1, rate: 100, kinds: n, window: window}
		kinds.sides = append(kinds.sides, side{name: fmt.Sprintf("%d kinds", n),
			measure: func(ctx context.Context, b *bench, label string) (sample, error) {
				return f.measure(ctx, b, ours, label)
			}})
	}
	manyKinds := row{name: "fleet-20-kinds", long: true, figures: fleetFigures(), title: "20 workers, 100 single enqueues a second of 1, 3 or 50 kinds of jobs in turn"}
	for _, n := range []int{1, 3, 50} {
		f := fleet{workers: 20, rate: 100, kinds: n, window: window}
		manyKinds.sides = append(manyKinds.sides, side{name: fmt.Sprintf("%d kinds", n),
			measure: func(ctx context.Context, b *bench, label string) (sample, error) {
				return f.measure(ctx, b, ours, label)
			}})
	}
	delayed, retried := f, f
	delayed.delayed, retried.retried = true, true
	all = append(all,
		row{name: "fleet-delayed", long: true, figures: fleetFigures(), sides: beside(delayed, ours, river),
			title: "20 workers, 100 single enqueues a second that are due 2 s later, defaults; latency from then on"},
		row{name: "fleet-retried", long: true, figures: fleetFigures(), sides: beside(retried, ours, river),
			title: "20 workers, 100 single enqueues a second, of which one in ten fails once and is due again 2 s later"})
	within, unique, callers, long := f, f, f, f
	within.within, unique.unique, callers.callers, long.busy = true, true, 8, 200*time.Millisecond
	all = append(all,
		row{name: "fleet-within", long: true, figures: fleetFigures(), sides: beside(within, ours, river),
			title: "20 workers, 100 single enqueues a second, each in a transaction of the caller's, defaults"},
		row{name: "fleet-unique", long: true, figures: fleetFigures(), sides: beside(unique, ours, river),
			title: "20 workers, 100 single enqueues a second, each with a key of its own, defaults"},
		row{name: "fleet-callers", long: true, figures: fleetFigures(), sides: beside(callers, ours, river),
			title: "20 workers, 100 single enqueues a second from 8 processes in turn, defaults"},
		row{name: "fleet-busy", long: true, figures: fleetFigures(), sides: beside(long, ours, river),
			title: "20 workers, 100 single enqueues a second of runs that take 200 ms, defaults"})
	limited := row{name: "fleet-limited", long: true, figures: fleetFigures(), title: "20 workers, 100 single enqueues a second under a limit that is never full, defaults"}
	for _, n := range []int{0, 1, 1000} {
		f := fleet{workers: 20, rate: 100, keys: n, window: window}
		limited.sides = append(limited.sides, side{name: fmt.Sprintf("%d keys", n),
			measure: func(ctx context.Context, b *bench, label string) (sample, error) {
				return f.measure(ctx, b, ours, label)
			}})
	}
	burst := row{name: "fleet-burst", long: true, title: "10000 runs enqueued in one call for 20 idle workers, defaults", figures: []figure{
		{key: "last", title: "from the end of the call until the last worker starts one", unit: "ms", less: true, ratio: 1}, {key: "reached", title: "workers reached"},
		{key: "all", title: "until all are executed", unit: "ms", less: true}, {key: "enqueue", title: "the call", unit: "ms", less: true}}}
	for _, name := range []string{ours, river} {
		burst.sides = append(burst.sides, side{name: name,
			measure: func(ctx context.Context, b *bench, _ string) (sample, error) {
				return fleet{workers: 20}.burst(ctx, b, name, 10_000)
			}})
	}
	return append(all, kinds, manyKinds, limited, burst, growingFleet(window))
}

// sqliteFleets are processes that share a file.
func sqliteFleets(window time.Duration) row {
	r := row{name: "fleet-sqlite", long: true, figures: fleetFigures(), title: "SQLite: processes of one worker each on one file, 100 single enqueues a second, defaults"}
	for _, n := range []int{1, 4, 8} {
		f := fleet{workers: n, processes: n, rate: 100, on: onSQLite, window: window}
		r.sides = append(r.sides, side{name: fmt.Sprintf("%d processes", n), measure: func(ctx context.Context, b *bench, label string) (sample, error) {
			return f.measure(ctx, b, ours, label)
		}})
	}
	return r
}

// growingFleet is the cost of a run on more and more workers.
func growingFleet(window time.Duration) row {
	sizes := []int{1, 2, 5, 10, 20, 50, 100}
	var figures []figure
	for _, size := range sizes {
		for _, f := range []figure{{key: "each", title: "server CPU", unit: "ms/run", less: true, ratio: 1}, {key: "p50", title: "p50", unit: "ms", less: true}, {key: "p99", title: "p99", unit: "ms", less: true}} {
			f.key, f.title = fmt.Sprintf("%s-%d", f.key, size), fmt.Sprintf("%s, %d workers", f.title, size)
			figures = append(figures, f)
		}
	}
	r := row{name: "growth-fleet", long: true, figures: figures, title: "100 single enqueues a second for more and more workers, defaults"}
	for _, name := range []string{ours, river} {
		r.sides = append(r.sides, side{name: name, measure: func(ctx context.Context, b *bench, label string) (sample, error) {
			all, cost := sample{}, line{name: name}
			for _, size := range sizes {
				found, err := fleet{workers: size, rate: 100, window: window}.measure(ctx, b, name, label)
				if err != nil {
					return nil, err
				}
				for _, key := range []string{"each", "p50", "p99"} {
					all[fmt.Sprintf("%s-%d", key, size)] = found[key]
				}
				cost.x, cost.y = append(cost.x, float64(size)), append(cost.y, found["each"])
				fmt.Fprintf(b.progress, "%s %d workers: %s\n", label, size, found.line(fleetFigures()))
			}
			b.keep(plot{name: r.name, title: r.title, across: "workers", along: "server CPU, ms a run", logarithmic: true}, cost)
			return all, nil
		}})
	}
	return r
}
