package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

// The other frameworks of steps.
const (
	dbos        = "dbos"
	goWorkflows = "goworkflows"
)

// perStep takes a drain of handlers that have steps as one of steps.
func perStep(d drain) side {
	return side{name: ours, measure: func(ctx context.Context, b *bench, label string) (sample, error) {
		d.label = label
		found, err := b.drain(ctx, d)
		if err != nil {
			return nil, err
		}
		found["rate"] *= stepsEach
		for _, key := range []string{"server", "go", "cpu", "wal", "statements"} {
			if value, ok := found[key]; ok {
				found[key] = value / stepsEach
			}
		}
		return found, nil
	}}
}

// stepCosts are the figures of what a step costs.
func stepCosts(ratio, least, server float64) []figure {
	list := []figure{{key: "rate", title: "steps", unit: "/s", ratio: ratio, bound: least}}
	for _, f := range unbounded(costs())[:5] {
		f.unit = strings.ReplaceAll(f.unit, "run", "step")
		if f.key == "server" {
			f.bound = server
		}
		list = append(list, f)
	}
	return append(list, costs()[7])
}

func lateness(p50, p99 float64) []figure {
	return []figure{{key: "p50", title: "p50", unit: "ms", less: true, bound: p50}, {key: "p99", title: "p99", unit: "ms", less: true, bound: p99}, {key: "max", title: "max", unit: "ms", less: true}}
}

// stepRows are handlers with steps, sleeps and inputs; n is a tenth of the runs of a drain.
func stepRows(n int, quick bool) []row {
	few, sleepers, parked, sent := n/10, 10_000, 1_000_000, 5000
	if quick {
		sleepers, parked, sent = 1000, 50_000, 500
	}
	own := func(name string, measure func(context.Context, *bench) (sample, error)) side {
		return side{name: name, measure: func(ctx context.Context, b *bench, _ string) (sample, error) { return measure(ctx, b) }}
	}
	hundred := spec{Contender: ours, Flow: stepping, Concurrency: 100}
	within := func(name string, do flow) side {
		return own(name, func(ctx context.Context, b *bench) (sample, error) { return b.wake(ctx, do, sleepers, time.Second) })
	}
	beside := drain{worker: tuned(ours), n: 10 * n, fill: func(ctx context.Context, w *watch) error {
		if err := w.park(ctx, parked); err != nil {
			return err
		}
		return loadPlain(ctx, w, 10*n)
	}}
	inputs := func(name string, n, rate int) side {
		return own(name, func(ctx context.Context, b *bench) (sample, error) { return b.inputs(ctx, n, rate) })
	}
	return []row{
		{name: "steps", title: fmt.Sprintf("%d steps of %d runs in 100 handlers (DBOS Go: of %d)", stepsEach*n, n, few), figures: stepCosts(5, 8000, 40),
			sides: []side{perStep(drain{worker: hundred, n: n}),
				{name: dbos, measure: foreign{name: dbos, workflows: few, handlers: 100, stored: "SELECT count(*) FROM dbos.operation_outputs"}.measure}}},
		{name: "step", title: "one handler, step by step, beside a commit of one row after each",
			figures: append(lateness(0, 0), figure{key: "commit", title: "a commit, p50", unit: "ms", less: true}, figure{key: "times", title: "step p50 / commit p50", unit: "×", less: true, bound: 1.2}),
			sides:   []side{own(ours, func(ctx context.Context, b *bench) (sample, error) { return b.stepAlone(ctx, max(few/250, 1)) })}},
		{name: "steps-sqlite", title: fmt.Sprintf("%d steps of %d runs in 100 handlers, in one SQLite file (go-workflows: of %d)", stepsEach*n, n, few/10), figures: stepCosts(5, 0, 0),
			sides: []side{perStep(drain{worker: hundred, on: onSQLite, n: n}),
				{name: goWorkflows, measure: foreign{name: goWorkflows, on: onSQLite, workflows: few / 10, handlers: 100}.measure},
				{name: dbos, measure: foreign{name: dbos, on: onSQLite, workflows: few, handlers: 100}.measure}}},
		{name: "sleep-wake", title: fmt.Sprintf("%d runs asleep until instants within a second: how late they continue, beside plain runs that are due then", sleepers),
			figures: lateness(0, 50), sides: []side{within("asleep", sleeping), within("plain", plainly)}},
		{name: "sleep-at-once", title: fmt.Sprintf("%d runs asleep until one instant, beside plain runs that are due at one", sleepers),
			figures: append(lateness(0, 0), figure{key: "plain", title: "the last plain run", unit: "ms", less: true}, figure{key: "beyond", title: "p99 after that", unit: "ms", less: true, bound: 50}),
			sides:   []side{own("asleep", func(ctx context.Context, b *bench) (sample, error) { return b.wakeAtOnce(ctx, sleepers) })}},
		{name: "input", title: "from a send until the handler begins again, defaults, while as many runs a second begin to wait",
			figures: lateness(4, 20), sides: []side{inputs("50 a second", sent/10, 50), inputs("1000 a second", sent, 1000)}},
		{name: "parked-1M", long: !quick, title: fmt.Sprintf("drain %d runs beside %d of the same job that sleep (share: of the clean drain)", 10*n, parked),
			figures: append([]figure{rate(0), {key: "share", title: "of the clean drain", unit: "%", bound: 98}, {key: "thrift", title: "the same by CPU per run", unit: "%", bound: 98, plain: true}}, unbounded(costs())...),
			sides:   []side{compared(beside, drain{worker: tuned(ours), n: 10 * n})}},
	}
}

// sleepers copies the rows of a run that sleeps.
const sleepers = `WITH numbered AS MATERIALIZED (
		SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || '70008000' || lpad(to_hex($2::int + g), 12, '0'))::uuid AS id
		FROM generate_series(1, $1::int) g
	), copied AS (
		INSERT INTO durable.runs (id, %[1]s) SELECT numbered.id, %[1]s FROM numbered, durable.runs one WHERE one.id = $3
	), queued AS (
		INSERT INTO durable.ready (run_id, %[2]s) SELECT numbered.id, %[2]s FROM numbered, durable.ready one WHERE one.run_id = $3
	) INSERT INTO durable.steps (run_id, %[3]s) SELECT numbered.id, %[3]s FROM numbered, durable.steps one WHERE one.run_id = $3`

// park lays down n runs: one falls asleep in a worker, and the others are copied from it.
func (w *watch) park(ctx context.Context, n int) error {
	s := spec{Contender: ours, Role: working, Target: w.target, Flow: sleeping}
	shared, err := newCounters("")
	if err != nil {
		return err
	}
	defer shared.close()
	s.Counters = shared.path
	worker, err := spawn(s)
	if err != nil {
		return err
	}
	e, err := durableContender{}.enqueuer(ctx, spec{Contender: ours, Target: w.target})
	if err != nil {
		worker.end()
		return err
	}
	defer e.close()
	if err = worker.begin(); err == nil {
		err = e.enqueue(ctx, []int64{time.Now().Add(24 * time.Hour).UnixNano()})
	}
	if err == nil {
		err = (&flowed{watch: w}).counted(ctx, countWaits, 1, stall)
	}
	worker.end()
	if err != nil {
		return fmt.Errorf("park one run: %w", err)
	}
	return w.copy(ctx, n)
}

func (w *watch) copy(ctx context.Context, n int) error {
	var id durable.RunID
	if err := w.conn.QueryRow(ctx, "SELECT run_id FROM durable.steps").Scan(&id); err != nil {
		return err
	}
	var columns [3]any
	for i, of := range [][2]string{{"runs", "id"}, {"ready", "run_id"}, {"steps", "run_id"}} {
		err := w.conn.QueryRow(ctx, `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
			WHERE attrelid = ('durable.' || $1)::regclass AND attnum > 0 AND NOT attisdropped AND attname <> $2`, of[0], of[1]).Scan(&columns[i])
		if err != nil {
			return err
		}
	}
	const most = 200_000
	for done := 0; done < n; done += most {
		if _, err := w.conn.Exec(ctx, fmt.Sprintf(sleepers, columns[:]...), min(most, n-done), done, id); err != nil {
			return fmt.Errorf("copy a run that sleeps: %w", err)
		}
	}
	return nil
}
