package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	riverqueue "github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type riverContender struct{}

func (riverContender) prepare(ctx context.Context, target string) error {
	pool, err := pgxpool.New(ctx, target)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: riverLogger()})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func riverLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func (riverContender) enqueuer(ctx context.Context, s spec) (*enqueuer, error) {
	pool, err := pgxpool.New(ctx, s.Target)
	if err != nil {
		return nil, err
	}
	// The inserting client sends at most one notification in each cooldown.
	client, err := riverqueue.NewClient(riverpgxv5.New(pool), &riverqueue.Config{FetchCooldown: s.Cooldown, Logger: riverLogger()})
	if err != nil {
		pool.Close()
		return nil, err
	}
	var options *riverqueue.InsertOpts
	if s.Unique {
		options = &riverqueue.InsertOpts{UniqueOpts: riverqueue.UniqueOpts{ByArgs: true}}
	}
	enqueue := func(ctx context.Context, numbers []int64) error {
		options := options
		if s.Delayed {
			options = &riverqueue.InsertOpts{ScheduledAt: time.Now().Add(delayedBy)}
		}
		if s.Within {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				_, err := client.InsertTx(ctx, tx, args{N: numbers[0]}, options)
				return err
			})
		}
		if len(numbers) == 1 {
			_, err := client.Insert(ctx, args{N: numbers[0]}, options)
			return err
		}
		params := make([]riverqueue.InsertManyParams, len(numbers))
		for i, n := range numbers {
			params[i].Args, params[i].InsertOpts = args{N: n}, options
		}
		if s.Fast {
			_, err := client.InsertManyFast(ctx, params)
			return err
		}
		_, err := client.InsertMany(ctx, params)
		return err
	}
	return &enqueuer{enqueue: enqueue, close: pool.Close}, nil
}

// riverWorker is the handler.
type riverWorker struct {
	riverqueue.WorkerDefaults[args]
	spec    spec
	handled func(n int64)
}

// NextRetry is when a run that failed is due again; the zero time: by River's policy.
func (w *riverWorker) NextRetry(*riverqueue.Job[args]) time.Time {
	if w.spec.Retried {
		return time.Now().Add(retriedAfter)
	}
	return time.Time{}
}

// Work counts and returns.
func (w *riverWorker) Work(_ context.Context, job *riverqueue.Job[args]) error {
	switch {
	case w.spec.fails(job.Args.N, job.Attempt):
		return errOnce
	case job.Attempt > 1:
		w.handled(time.Now().UnixNano())
	default:
		w.handled(job.Args.N)
	}
	time.Sleep(w.spec.Busy)
	return nil
}

func (riverContender) worker(ctx context.Context, s spec, handled func(int64)) (*worker, error) {
	pool, err := pgxpool.New(ctx, s.Target)
	if err != nil {
		return nil, err
	}
	workers := riverqueue.NewWorkers()
	riverqueue.AddWorker(workers, &riverWorker{spec: s, handled: handled})
	concurrency := s.Concurrency
	if concurrency == 0 {
		concurrency = 100 // River has no default; its manual's examples say 100
	}
	client, err := riverqueue.NewClient(riverpgxv5.New(pool), &riverqueue.Config{
		Queues:        map[string]riverqueue.QueueConfig{riverqueue.QueueDefault: {MaxWorkers: concurrency}},
		FetchCooldown: s.Cooldown, FetchPollInterval: s.Poll, PollOnly: s.PollOnly,
		Workers: workers, Logger: riverLogger(),
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	stop := func() { _ = client.Stop(context.WithoutCancel(ctx)); pool.Close() }
	return &worker{start: func() error { return client.Start(ctx) }, stop: stop}, nil
}

func (riverContender) unsettled(ctx context.Context, w *watch) (bool, error) {
	return w.exists(ctx, "SELECT EXISTS (SELECT FROM river_job WHERE state = 'running') OR EXISTS (SELECT FROM river_job WHERE state = 'available')")
}

func (riverContender) finished(ctx context.Context, w *watch) (int, error) {
	return w.count(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed'")
}
