package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

type durableContender struct{}

func (durableContender) prepare(ctx context.Context, target string) error {
	db, err := backend.Open(ctx, target, backend.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Migrate(ctx)
	return err
}

func (durableContender) enqueuer(ctx context.Context, s spec) (*enqueuer, error) {
	db, err := backend.Open(ctx, s.Target, backend.Config{})
	if err != nil {
		return nil, err
	}
	name := jobName
	if s.Job != "" {
		name = s.Job
	}
	var options []durable.Option
	if s.Future {
		options = append(options, durable.After(time.Hour), durable.Priority(store.MaxPriority))
	}
	if s.Delayed {
		options = append(options, durable.After(delayedBy))
	}
	jobs, client := laneJobs(name, s), durable.NewClient(db)
	var sequence atomic.Int64
	enqueue := func(ctx context.Context, numbers []int64) error {
		runs := make([]durable.NewRun, len(numbers))
		for i, n := range numbers {
			with := options
			if s.Unique {
				with = []durable.Option{durable.Unique(strconv.FormatInt(n, 10))}
			}
			runs[i] = jobs[int(sequence.Add(1))%len(jobs)].New(args{N: n}, with...)
		}
		_, err := client.Enqueue(ctx, runs...)
		return err
	}
	if s.Within {
		return within(ctx, s.Target, db)
	}
	return &enqueuer{enqueue: enqueue, close: db.Close}, nil
}

// within enqueues each run in a transaction of its own, of the caller's pool.
func within(ctx context.Context, target string, db backend.Store) (*enqueuer, error) {
	bound := backend.Postgres(db)
	pool, err := pgxpool.New(ctx, target)
	if err != nil {
		return nil, err
	}
	job := durable.NewJob[args](jobName)
	enqueue := func(ctx context.Context, numbers []int64) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			_, err := bound.WithTx(tx).Enqueue(ctx, job.New(args{N: numbers[0]}))
			return err
		})
	}
	return &enqueuer{enqueue: enqueue, close: func() { pool.Close(); db.Close() }}, nil
}

// laneJobs are as many jobs as there are to be lanes.
func laneJobs(name string, s spec) []durable.Job[args] {
	var options []durable.Option
	if s.Retried {
		options = append(options, durable.Retry(durable.Fixed(retriedAfter)))
	}
	if s.Keys > 0 {
		options = append(options, durable.Limited(durable.NewLimit("many", durable.Semaphore(1000)),
			durable.KeyFrom(func(a args) string { return strconv.FormatInt(a.N%int64(s.Keys), 10) })))
	}
	jobs := []durable.Job[args]{durable.NewJob[args](name, options...)}
	for i := 1; i < s.Lanes; i++ {
		jobs = append(jobs, durable.NewJob[args](fmt.Sprintf("%s-%d", name, i), options...))
	}
	return jobs
}

func (durableContender) worker(ctx context.Context, s spec, handled func(int64)) (*worker, error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	db, err := backend.Open(ctx, s.Target, backend.Config{Logger: logger})
	if err != nil {
		return nil, err
	}
	config := durable.WorkerConfig{
		MaxConcurrentRuns: s.Concurrency, NoListen: s.PollOnly, PollInterval: s.Poll, Logger: logger, SweepInterval: s.Sweep,
		ClaimBatchBytes: s.ClaimBytes, Terms: lease.Terms{Duration: s.Lease},
	}
	var with *operated
	if s.Collector != "" {
		if with, err = operatedOf(ctx, s, &config, logger); err != nil {
			return nil, err
		}
	}
	w := durable.NewWorker(db, config)
	if s.Flow == plainly {
		registerPlain(w, s, handled)
	} else {
		(&flowing{spec: s, handled: handled}).register(w)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	start := func() error {
		if with != nil {
			with.begin(ctx, s.Watched)
		}
		running.Go(func() {
			if err := w.Run(ctx); err != nil {
				logger.Error("worker", "error", err)
			}
		})
		return nil
	}
	stop := func() {
		cancel()
		running.Wait()
		if with != nil {
			if err := with.close(); err != nil {
				logger.Error("what operating offers", "error", err)
			}
		}
		db.Close()
	}
	return &worker{start: start, stop: stop}, nil
}

// registerPlain tells the worker to count runs.
func registerPlain(w *durable.Worker, s spec, handled func(int64)) {
	for _, job := range laneJobs(jobName, s) {
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[args]) error {
			switch {
			case s.fails(run.Args.N, run.Attempt):
				return errOnce
			case run.Attempt > 1:
				handled(time.Now().UnixNano())
				return nil
			}
			handled(run.Args.N)
			if s.Hang {
				<-ctx.Done()
			}
			time.Sleep(s.Busy)
			return nil
		})
	}
}

// unsettled looks for leases: the last settle of a claim ends its lease.
func (c durableContender) unsettled(ctx context.Context, w *watch) (bool, error) {
	if strings.HasPrefix(w.target, "sqlite:") {
		counts, err := c.counts(ctx, w)
		return counts[durable.Running].N+counts[durable.Pending].N > 0, err
	}
	return w.exists(ctx, "SELECT EXISTS (SELECT FROM durable.leases)")
}

func (c durableContender) finished(ctx context.Context, w *watch) (int, error) {
	if !strings.HasPrefix(w.target, "sqlite:") { // large numbers are estimated by the db
		return w.count(ctx, "SELECT count(*) FROM durable.runs WHERE state = 2")
	}
	counts, err := c.counts(ctx, w)
	return int(counts[durable.Succeeded].N), err
}

func (durableContender) counts(ctx context.Context, w *watch) (map[durable.State]store.Count, error) {
	db, err := backend.Open(ctx, w.target, backend.Config{})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return db.Counts(ctx)
}
