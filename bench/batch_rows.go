package main

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/backend"
)

// members fills two places: one with n plain runs, and one with as many members of a batch and a run
// that begins when the batch has ended.
type members struct {
	n             int
	plain, joined time.Duration // to store the runs
}

// fill stores the batch, and what waits for it.
func (m *members) fill(ctx context.Context, w *watch) error {
	batch := durable.NewBatch("bench", durable.Open(time.Hour))
	took, err := stored(ctx, w, m.n, batch)
	if err != nil {
		return err
	}
	m.joined = took
	db, err := backend.Open(ctx, w.target, backend.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	client, job := durable.NewClient(db), durable.NewJob[args](jobName)
	if _, err := client.Enqueue(ctx, job.New(args{N: int64(firstNumber + m.n)}, durable.DependsOn(batch.OnEnd()))); err != nil {
		return fmt.Errorf("store the callback: %w", err)
	}
	return client.CloseBatch(ctx, batch.ID())
}

// against stores the plain runs that a drain is compared with.
func (m *members) against(ctx context.Context, w *watch) (err error) {
	m.plain, err = stored(ctx, w, m.n)
	return err
}

// stored stores n runs in calls of a thousand, in a batch if one is given, and returns how long that
// took.
func stored(ctx context.Context, w *watch, n int, in ...durable.Batch) (time.Duration, error) {
	db, err := backend.Open(ctx, w.target, backend.Config{})
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var options []durable.Option
	for _, batch := range in {
		options = append(options, durable.InBatch(batch))
	}
	client, job := durable.NewClient(db), durable.NewJob[args](jobName)
	const together = 1000
	began := time.Now()
	for done := 0; done < n; done += together {
		runs := make([]durable.NewRun, min(together, n-done))
		for i := range runs {
			runs[i] = job.New(args{N: int64(firstNumber + done + i)}, options...)
		}
		if _, err := client.Enqueue(ctx, runs...); err != nil {
			return 0, fmt.Errorf("load: %w", err)
		}
	}
	return time.Since(began), nil
}

// callback is how long after the last end of a member the run began that waits for the batch, in
// milliseconds on the store's clock.
func callback(ctx context.Context, w *watch, found sample) error {
	var late float64
	err := w.conn.QueryRow(ctx, `SELECT (1000 * extract(epoch FROM waiter.started_at - (
			SELECT max(runs.finished_at) FROM durable.members JOIN durable.runs ON runs.id = members.run_id)))::float8
		FROM durable.edges JOIN durable.runs waiter ON waiter.id = edges.waiter`).Scan(&late)
	if err != nil {
		return fmt.Errorf("read when the callback began: %w", err)
	}
	found["callback"] = late
	return nil
}

// batchRows are members of one batch beside plain runs.
func batchRows(n int) []row {
	drained := func(name string, n, processes int) row {
		worker := tuned(ours)
		measure := func(ctx context.Context, b *bench, label string) (sample, error) {
			m := &members{n: n}
			full := drain{worker: worker, n: n + 1, processes: processes, fill: m.fill, inspect: callback}
			found, err := compared(full, drain{worker: worker, n: n, processes: processes, fill: m.against}).measure(ctx, b, label)
			if err != nil {
				return nil, err
			}
			found["stored"] = 100 * m.plain.Seconds() / m.joined.Seconds()
			return found, nil
		}
		return row{name: name, title: fmt.Sprintf("drain %d members of one batch with %d processes, beside as many plain runs", n, processes), long: n >= 1_000_000,
			figures: append([]figure{{key: "thrift", title: "of plain runs, by CPU per run", unit: "%", bound: 80}, {key: "share", title: "of plain runs, by time", unit: "%"},
				{key: "stored", title: "enqueued, of plain runs", unit: "%", bound: 60},
				{key: "callback", title: "from the last end until the callback begins", unit: "ms", less: true, bound: 50}}, unbounded(costs())...),
			sides: []side{{name: ours, measure: measure}}}
	}
	return []row{drained("batch-100k", n, 4), drained("batch-1M", max(10*n, 1_000_000), 4)}
}
