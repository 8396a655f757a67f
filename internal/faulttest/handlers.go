package faulttest

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

type (
	args struct{}
	job  = durable.Job[args]
)

func kept(name string) job {
	return durable.NewJob[args](name, durable.Retention(store.KeepForever), durable.Retry(durable.Fixed(50*time.Millisecond)),
		durable.MaxAttempts(1000))
}

// jobs are what the workers of a round execute, but for brief and gone.
var jobs = struct{ plain, fail, die, report, parent, child, complete, keep, wait, brief, gone, tick job }{ //nolint:gochecknoglobals // never changes
	kept("plain"), kept("fail"), kept("die"), kept("report"), kept("parent"), kept("child"), kept("complete"), kept("keep"), kept("wait"),
	durable.NewJob[args]("brief"), kept("gone"), kept("tick"),
}

func newWorkerID(name string) store.WorkerID {
	return store.WorkerID{Name: name, Instance: uuid.New()}
}

// running is a worker under way.
type running struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

func (w *running) endedWithin(d time.Duration) bool {
	select {
	case <-w.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// start starts a worker on the faulty side.
func (r *round) start(name, queue string, recurring bool) *running {
	batch := 0
	if r.pace.Leases > 0 {
		batch = 1
	}
	w := durable.NewWorker(r.subject.Faulty, durable.WorkerConfig{
		Name: name, Queues: []durable.Queue{{Name: queue}}, MaxConcurrentRuns: r.pace.Leases + 20, ClaimBatchSize: batch, PollInterval: 100 * time.Millisecond,
		Terms: lease.Terms{Duration: r.pace.Lease}, DrainTimeout: 500 * time.Millisecond, CancelGrace: time.Second,
		Retention: retention, RetentionDead: store.KeepForever, SweepInterval: time.Second, Logger: logger(r.t),
		Elapsed: func() time.Duration { return time.Hour + time.Since(r.began) }, // also where time is not the machine's
	})
	r.register(w)
	if recurring {
		durable.AddSchedule(w, "tick", jobs.tick, args{}, store.Every(time.Second), durable.Overlap(store.OverlapAllow))
	}
	ctx, cancel := context.WithCancel(r.ctx)
	made := &running{cancel: cancel, ended: make(chan struct{})}
	r.t.Cleanup(func() { cancel(); <-made.ended })
	go func() {
		defer close(made.ended)
		if err := w.Run(ctx); err != nil && !r.stop.stops(Crashless) { // what it had to leave is executed again
			r.fault("worker %s: %v", name, err)
		}
	}()
	return made
}

func (r *round) register(w *durable.Worker) {
	handle := func(j job, do func(ctx context.Context, run *durable.Run[args]) error) {
		durable.Register(w, j, func(ctx context.Context, run *durable.Run[args]) error {
			r.note(j.Name())
			return do(ctx, run)
		})
	}
	handle(jobs.plain, nothing)
	handle(jobs.child, nothing)
	handle(jobs.fail, func(_ context.Context, run *durable.Run[args]) error {
		if run.Attempt == 1 {
			return errors.New("fails once")
		}
		return nil
	})
	handle(jobs.die, func(context.Context, *durable.Run[args]) error { return durable.Permanent(errors.New("dies")) })
	handle(jobs.report, func(ctx context.Context, run *durable.Run[args]) error { return run.Checkpoint(ctx, 1) })
	handle(jobs.parent, func(ctx context.Context, run *durable.Run[args]) error {
		_, err := run.Enqueue(ctx, jobs.child.New(args{}, durable.Unique(run.ID.String())))
		return err
	})
	handle(jobs.complete, r.complete)
	handle(jobs.keep, func(ctx context.Context, _ *durable.Run[args]) error {
		select {
		case <-r.kept:
			return nil
		case <-ctx.Done():
			r.mu.Lock()
			defer r.mu.Unlock()
			r.lost = true
			return context.Cause(ctx)
		}
	})
	handle(jobs.wait, func(ctx context.Context, _ *durable.Run[args]) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	handle(jobs.tick, func(context.Context, *durable.Run[args]) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ticks++
		return nil
	})
}

func nothing(context.Context, *durable.Run[args]) error { return nil }

// complete completes the run in a transaction of its own.
func (r *round) complete(ctx context.Context, run *durable.Run[args]) error {
	tx, err := r.subject.Begin(ctx)
	if err != nil {
		return err
	}
	if err = run.Guard(ctx, tx.Tx); err == nil {
		_, err = tx.Tx.Enqueue(ctx, jobs.child.New(args{}))
	}
	if err == nil {
		err = run.CompleteIn(ctx, tx.Tx)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx)
}

func (r *round) note(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started[name]++
}

func (r *round) handlers(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.started[name]
}

func (r *round) tickCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ticks
}

func (r *round) isLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}
