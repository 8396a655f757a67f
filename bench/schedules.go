package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// duePerStep is many schedules that all come due at one instant.
type duePerStep struct {
	on        engine
	schedules int
	handlers  int // that one worker executes concurrently; 0: it does not know the job
}

// materializing is a store that notes how long its materializing takes.
type materializing struct {
	backend.Store
	mu      sync.Mutex
	runs    atomic.Int64
	longest time.Duration // of one transaction
	last    time.Time     // when the last one that made runs had ended
}

// Materialize passes the call on.
func (m *materializing) Materialize(
	ctx context.Context, limit int, decide func(time.Time, store.Schedule) store.Decision,
) (store.MaterializeResult, error) {
	began := time.Now()
	made, err := m.Store.Materialize(ctx, limit, decide)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(made.Runs) > 0 {
		m.runs.Add(int64(len(made.Runs)))
		m.last, m.longest = time.Now(), max(m.longest, time.Since(began))
	}
	return made, err
}

// due measures from the start of a worker until every schedule has its run, and
// until every run has ended.
func (b *bench) due(ctx context.Context, d duePerStep) (sample, error) {
	w, err := b.place(ctx, ours, d.on)
	if err != nil {
		return nil, err
	}
	defer w.close()
	opened, err := backend.Open(ctx, w.target, backend.Config{})
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	db := &materializing{Store: opened}
	due := time.Now().Add(-time.Second).Truncate(time.Second)
	if err := d.declare(ctx, db, due); err != nil {
		return nil, err
	}
	if err := overdue(ctx, w, due); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var started atomic.Int64
	job, handlers, wanted := durable.NewJob[args]("due"), d.handlers, &started
	if d.handlers == 0 {
		job, handlers, wanted = durable.NewJob[args]("other"), 1, &db.runs
	}
	worker := durable.NewWorker(db, durable.WorkerConfig{MaxConcurrentRuns: handlers, Logger: slog.New(slog.DiscardHandler)})
	durable.Register(worker, job, func(context.Context, *durable.Run[args]) error {
		started.Add(1)
		return nil
	})
	account, err := b.account(ctx, w, "schedules-due")
	if err != nil {
		return nil, err
	}
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	if err := d.until(ctx, w, wanted, ended); err != nil {
		return nil, fmt.Errorf("%d of %d runs were made: %w", db.runs.Load(), d.schedules, err)
	}
	all := time.Since(began)
	found := d.figures(db, began, all)
	err = account.close(ctx, d.schedules, found)
	cancel()
	if stopped := <-ended; err == nil {
		err = stopped
	}
	return found, err
}

// overdue makes all schedules due at an instant.
func overdue(ctx context.Context, w *watch, at time.Time) error {
	if w.conn == nil {
		return nil
	}
	if _, err := w.conn.Exec(ctx, "UPDATE durable.schedules SET next_at = $1, look_at = $1", at); err != nil {
		return err
	}
	_, err := w.conn.Exec(ctx, "VACUUM durable.schedules") // of what only this update has left
	return err
}

// until waits until there are as many runs as schedules, and where they are
// executed, until all have finished.
func (d duePerStep) until(ctx context.Context, w *watch, wanted *atomic.Int64, ended <-chan error) error {
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("the worker has stopped: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
		switch {
		case int(wanted.Load()) < d.schedules:
		case d.handlers == 0:
			return nil
		default:
			finished, err := durableContender{}.finished(ctx, w)
			if err != nil || finished >= d.schedules {
				return err
			}
		}
	}
}

// figures tell what was measured.
func (d duePerStep) figures(db *materializing, began time.Time, all time.Duration) sample {
	found := sample{"made": db.last.Sub(began).Seconds(), "longest": milliseconds(db.longest)}
	if d.handlers > 0 {
		found["all"], found["rate"] = all.Seconds(), float64(d.schedules)/all.Seconds()
	}
	return found
}

func (d duePerStep) declare(ctx context.Context, db backend.Store, due time.Time) error {
	declaration := store.Declaration{Worker: store.WorkerID{Name: "bench", Instance: uuid.New()}}
	for i := range d.schedules {
		declaration.Schedules = append(declaration.Schedules, store.Schedule{
			Name: fmt.Sprintf("schedule-%06d", i), Hash: "h", Job: "due", Queue: "default", MaxAttempts: 3,
			Args: json.RawMessage(`{"n":1}`), Rule: durable.Every(24 * time.Hour).From(due),
		})
		if len(declaration.Schedules) == 1000 || i == d.schedules-1 {
			if err := db.Declare(ctx, declaration); err != nil {
				return err
			}
			declaration.Schedules = declaration.Schedules[:0]
		}
	}
	return nil
}

func scheduleRows(n int) []row {
	due := func(name string, d duePerStep) side {
		return side{name: name, measure: func(ctx context.Context, b *bench, _ string) (sample, error) { return b.due(ctx, d) }}
	}
	return []row{{
		name: "schedules-due", long: true, title: fmt.Sprintf("%d schedules come due at one instant, one worker", n),
		figures: []figure{
			{key: "made", title: "until each has its run", unit: "s", less: true, bound: 1.2}, {key: "longest", title: "longest transaction", unit: "ms", less: true, bound: 50},
			{key: "all", title: "until every run has ended", unit: "s", less: true}, rate(0),
			{key: "server", title: "server CPU", unit: "µs/schedule", less: true}, {key: "go", title: "Go CPU", unit: "µs/schedule", less: true},
			{key: "cpu", title: "both", unit: "µs/schedule", less: true}, {key: "wal", title: "WAL", unit: "B/schedule", less: true},
		},
		sides: []side{
			due("nothing executed", duePerStep{on: onPostgres, schedules: n}),
			due("2000 concurrent handlers", duePerStep{on: onPostgres, schedules: n, handlers: 2000}),
		},
	}}
}
