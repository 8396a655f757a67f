package main

import (
	"context"
	"fmt"
	"time"
)

// row is one line of what is compared, with its figures below.
type row struct {
	name    string
	title   string
	figures []figure
	sides   []side // ours first
	long    bool   // left out unless asked for by name
}

// side is one of the things compared in a row.
type side struct {
	name    string
	measure func(context.Context, *bench, string) (sample, error)
}

// figure is one number of a row.
type figure struct {
	key   string
	title string
	unit  string
	less  bool    // less is better
	ratio float64 // goal: so many times better than the second side
	bound float64 // goal: ours no worse than this
	plain bool    // not to be compared
}

// rate is the figure of throughput.
func rate(goal float64) figure {
	return figure{key: "rate", title: "throughput", unit: "/s", ratio: goal}
}

// thrift is the share measured by CPU, which others on the machine disturb less.
func thrift() figure {
	return figure{key: "thrift", title: "the same by CPU per run", unit: "%", plain: true}
}

// costs are the figures of what a run costs.
func costs() []figure {
	return []figure{
		{key: "server", title: "server CPU", unit: "µs/run", less: true, bound: 9},
		{key: "go", title: "Go CPU", unit: "µs/run", less: true, bound: 6},
		{key: "cpu", title: "both", unit: "µs/run", less: true},
		{key: "wal", title: "WAL", unit: "B/run", less: true, bound: 700},
		{key: "statements", title: "statements", unit: "/run", less: true, plain: true},
		{key: "dead", title: "row versions left dead", unit: "/run", less: true, plain: true},
		{key: "hot", title: "of them HOT", unit: "/run", plain: true},
		{key: "others", title: "machine used by others", unit: "%", less: true, plain: true},
	}
}

// unbounded takes away the goals, which are those of a drain.
func unbounded(figures []figure) []figure {
	for i := range figures {
		figures[i].bound = 0
	}
	return figures
}

// tuned are the settings River is fastest with, and the same for the others.
func tuned(name string) spec {
	s := spec{Contender: name, Concurrency: 2000}
	if name == river {
		s.Cooldown, s.Poll = time.Millisecond, time.Millisecond
	}
	return s
}

func draining(s spec, n int) side { return drainingOn(onPostgres, s, n, 1) }

func drainingOn(on engine, s spec, n, processes int) side {
	return side{name: s.Contender, measure: func(ctx context.Context, b *bench, label string) (sample, error) {
		return b.drain(ctx, drain{worker: s, on: on, n: n, processes: processes, label: label})
	}}
}

// compared measures a drain in two ways and tells the first as a share of the
// second.
func compared(disturbed, clean drain) side {
	return side{name: disturbed.worker.Contender, measure: func(ctx context.Context, b *bench, label string) (sample, error) {
		clean.label, disturbed.label = label+"-clean", label
		reference, err := b.drain(ctx, clean)
		if err != nil {
			return nil, err
		}
		found, err := b.drain(ctx, disturbed)
		if err != nil {
			return nil, err
		}
		found["share"] = 100 * found["rate"] / reference["rate"]
		found["thrift"] = 100 * reference["cpu"] / found["cpu"]
		return found, nil
	}}
}

// rows are everything that is measured, with n runs where not said otherwise.
func rows(n int, quick bool) []row {
	if n == 0 {
		n = 100_000
		if quick {
			n = 40_000
		}
	}
	few := n / 5
	if quick {
		few = n / 10
	}
	window, waits := 10*time.Second, 500
	if quick {
		window, waits = 4*time.Second, 150
	}
	list := drainRows(n, few)
	list = append(list, disturbedRows(n)...)
	list = append(list, enqueueRows(n, window)...)
	list = append(list, lockRows(quick)...)
	list = append(list, herdRows(quick)...)
	list = append(list, limitRows(n/5, quick)...)
	list = append(list, fleetRows(quick)...)
	list = append(list, operatedRows(n, window)...)
	list = append(list, scheduleRows(n)...)
	list = append(list, stepRows(n/10, quick)...)
	list = append(list, linkRows(n, quick)...)
	list = append(list, batchRows(n)...)
	list = append(list, retentionRow(5*n, n/4), steadyRow(quick))
	list = append(list, scaleRows(n, few, quick)...)
	return append(list, quietRows(waits, few, window)...)
}

func drainRows(n, few int) []row {
	thrift := thrift()
	wide := func(name string) spec { s := tuned(name); s.Concurrency = 1000; return s }
	return []row{
		{name: "drain-default", title: fmt.Sprintf("drain %d runs (River %d), every setting its default", n, few),
			figures: append([]figure{rate(50)}, costs()...),
			sides:   []side{draining(spec{Contender: ours}, n), draining(spec{Contender: river}, few), drainingOn(onRedis, spec{Contender: redis}, few, 1)}},
		{name: "drain-tuned", title: fmt.Sprintf("drain %d runs, 2000 concurrent handlers, River fetching each 1 ms", n),
			figures: append([]figure{rate(4)}, costs()...),
			sides:   []side{draining(tuned(ours), n), draining(tuned(river), n)}},
		{name: "drain-1M", title: "drain a million runs, tuned", long: true,
			figures: append([]figure{rate(3)}, costs()...),
			sides:   []side{draining(tuned(ours), 10*n), draining(tuned(river), 10*n)}},
		{name: "processes", title: fmt.Sprintf("drain %d runs with 4 processes of 1000 handlers (share: of one such process)", n),
			figures: []figure{rate(4), {key: "share", title: "of one process", unit: "%", bound: 85}, thrift},
			sides: []side{
				compared(drain{worker: wide(ours), n: n, processes: 4}, drain{worker: wide(ours), n: n}),
				compared(drain{worker: wide(river), n: n, processes: 4}, drain{worker: wide(river), n: n}),
			}},
	}
}

func disturbedRows(n int) []row {
	thrift := thrift()
	ballast := func(ctx context.Context, w *watch, b *bench) error {
		if err := b.load(ctx, w, spec{Contender: ours, Job: "unserved"}, 10*n); err != nil {
			return err
		}
		return b.load(ctx, w, spec{Contender: ours, Future: true}, 10*n)
	}
	unserved := side{name: ours, measure: func(ctx context.Context, b *bench, label string) (sample, error) {
		full := drain{worker: tuned(ours), n: n, ballast: func(ctx context.Context, w *watch) error { return ballast(ctx, w, b) }}
		return compared(full, drain{worker: tuned(ours), n: n}).measure(ctx, b, label)
	}}
	return []row{
		{name: "drain-unserved", title: fmt.Sprintf("drain %d runs beside %d of a job that no worker serves and %d due in an hour at a higher priority", n, 10*n, 10*n), long: true,
			figures: append([]figure{{key: "rate", title: "throughput", unit: "/s"}, {key: "share", title: "of the clean drain", unit: "%", bound: 90}, thrift}, costs()...),
			sides:   []side{unserved}},
		{name: "held", title: fmt.Sprintf("drain %d runs while a snapshot is held open (share: of the clean drain)", n*8/5),
			figures: append([]figure{rate(0), {key: "share", title: "of the clean drain", unit: "%", bound: 90}, thrift}, costs()...),
			sides: []side{
				compared(drain{worker: tuned(ours), n: n * 8 / 5, held: true}, drain{worker: tuned(ours), n: n * 8 / 5}),
				compared(drain{worker: tuned(river), n: n * 8 / 5, held: true}, drain{worker: tuned(river), n: n * 8 / 5}),
			}},
	}
}

func enqueueRows(n int, window time.Duration) []row {
	storing := func(s spec, on engine) side {
		return side{name: s.Contender, measure: func(ctx context.Context, b *bench, label string) (sample, error) {
			return b.enqueue(ctx, s, on, true, label)
		}}
	}
	fast := storing(spec{Contender: river, Batch: 1000, Total: n, Fast: true}, onPostgres)
	fast.name = "river (COPY, no ids)"
	bothOf := func(name string) side {
		return side{name: name, measure: func(ctx context.Context, b *bench, _ string) (sample, error) {
			return b.both(ctx, tuned(name), spec{Contender: name, Batch: 1000, Backlog: 20_000, Fast: true}, onPostgres, window)
		}}
	}
	three := append([]figure{rate(2.5)}, unbounded(costs()[:4])...)
	single := append([]figure{rate(2)}, three[1:]...)
	return []row{
		{name: "enqueue-1000", title: fmt.Sprintf("enqueue %d runs, 1000 in one call, ids returned", n), figures: three,
			sides: []side{storing(spec{Contender: ours, Batch: 1000, Total: n}, onPostgres), storing(spec{Contender: river, Batch: 1000, Total: n}, onPostgres), fast}},
		{name: "enqueue-single", title: fmt.Sprintf("enqueue %d runs one by one from one goroutine", n/20), figures: single,
			sides: []side{storing(spec{Contender: ours, Batch: 1, Total: n / 20}, onPostgres), storing(spec{Contender: river, Batch: 1, Total: n / 20}, onPostgres),
				storing(spec{Contender: redis, Batch: 1, Total: n / 20}, onRedis)}},
		{name: "enqueue-unique", title: fmt.Sprintf("enqueue %d runs with a key of its own each, 1000 in one call (River: unique by args)", n/2), figures: append([]figure{rate(0)}, three[1:]...),
			sides: []side{storing(spec{Contender: ours, Batch: 1000, Total: n / 2, Unique: true}, onPostgres), storing(spec{Contender: river, Batch: 1000, Total: n / 2, Unique: true}, onPostgres)}},
		{name: "enqueue-unique-single", title: fmt.Sprintf("enqueue %d runs with a key of its own each, one by one", n/20), figures: append([]figure{rate(0)}, three[1:]...),
			sides: []side{storing(spec{Contender: ours, Batch: 1, Total: n / 20, Unique: true}, onPostgres), storing(spec{Contender: river, Batch: 1, Total: n / 20, Unique: true}, onPostgres)}},
		{name: "enqueue-tx", title: fmt.Sprintf("enqueue %d runs one by one, each in a transaction of the caller's", n/20), figures: append([]figure{rate(0)}, three[1:]...),
			sides: []side{storing(spec{Contender: ours, Batch: 1, Total: n / 20, Within: true}, onPostgres), storing(spec{Contender: river, Batch: 1, Total: n / 20, Within: true}, onPostgres)}},
		{name: "insert-and-work", title: fmt.Sprintf("enqueue and work concurrently for %v, from an empty database that was never analyzed", window),
			figures: append([]figure{rate(4)}, unbounded([]figure{costs()[0], costs()[3]})...), sides: []side{bothOf(ours), bothOf(river)}},
	}
}

func quietRows(waits, few int, window time.Duration) []row {
	waiting := func(label string, s spec, on engine) side {
		return side{name: label, measure: func(ctx context.Context, b *bench, _ string) (sample, error) { return b.latency(ctx, s, on, waits) }}
	}
	waitFigures := func(p50, p99, ratio float64) []figure {
		return []figure{
			{key: "p50", title: "p50", unit: "ms", less: true, bound: p50, ratio: ratio}, {key: "p99", title: "p99", unit: "ms", less: true, bound: p99, ratio: ratio},
			{key: "max", title: "max", unit: "ms", less: true},
		}
	}
	resting := func(name string, on engine) side {
		return side{name: name, measure: func(ctx context.Context, b *bench, label string) (sample, error) {
			return b.idle(ctx, spec{Contender: name}, on, 6*window, label)
		}}
	}
	polling := func(name string) spec { return spec{Contender: name, PollOnly: true, Poll: 100 * time.Millisecond} }
	return []row{
		{name: "latency", title: "from enqueue to start, defaults, one run each 20 ms", figures: waitFigures(0.9, 3, 0),
			sides: []side{waiting(ours, spec{Contender: ours}, onPostgres), waiting(river, spec{Contender: river}, onPostgres),
				waiting("river, 1 ms cooldown", spec{Contender: river, Cooldown: time.Millisecond}, onPostgres), waiting(redis, spec{Contender: redis}, onRedis)}},
		{name: "latency-poll", title: "the same without notifications, a poll each 100 ms", figures: waitFigures(0, 0, 1),
			sides: []side{waiting(ours, polling(ours), onPostgres), waiting(river, polling(river), onPostgres)}},
		sqliteRow(few),
		{name: "idle", title: "a worker with nothing to do; the process holds every contender's code",
			figures: []figure{{key: "memory", title: "resident memory", unit: "MiB", less: true, bound: 25}, {key: "trips", title: "round trips", unit: "/s", less: true, bound: 0.5}, {key: "asked", title: "statements", unit: "/s", less: true, plain: true},
				{key: "connections", title: "connections", less: true, plain: true}},
			sides: []side{resting(ours, onPostgres), resting(river, onPostgres)}},
	}
}
