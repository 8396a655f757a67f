package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/durable"
)

// flow is what the handlers of a worker do where they do more than return.
type flow string

const (
	plainly   flow = ""
	stepping  flow = "steps"   // stepsEach steps
	alone     flow = "step"    // many steps, each followed by a plain commit of another connection
	sleeping  flow = "sleep"   // until the instant in the args
	receiving flow = "input"   // until an input has come, which says when it was sent
	calling   flow = "call"    // a run of childJob
	following flow = "follows" // runs of followerJob depend on runs of jobName
	fanningIn flow = "fan-in"  // likewise; the samples are from the first source's beginning too
)

const (
	stepsEach   = 10
	stepsAlone  = 1000
	inputName   = "go"
	followerJob = "follower"
	childJob    = "child"
	holdJob     = "hold"
)

// flowing are the handlers of one worker.
type flowing struct {
	spec    spec
	handled func(sent int64)

	mu    sync.Mutex
	marks map[int64]mark // of sources, by their number
}

// mark is what is known of the sources with one number.
type mark struct{ began, returned time.Time }

// register tells the worker what to do with runs of a flow.
func (f *flowing) register(w *durable.Worker) {
	f.marks = map[int64]mark{}
	job := durable.NewJob[args](jobName)
	switch f.spec.Flow {
	case stepping:
		durable.Register(w, job, f.steps)
	case alone:
		durable.Register(w, job, f.alone)
	case sleeping:
		durable.Register(w, job, f.sleep)
	case receiving:
		durable.Register(w, job, f.receive)
	case calling:
		child := durable.Returning[int64](durable.NewJob[args](childJob))
		durable.Register(w, job, func(ctx context.Context, run *durable.Run[args]) error {
			if _, err := child.Call(ctx, run, childJob, run.Args); err != nil {
				return err
			}
			f.handled(run.Args.N)
			return nil
		})
		durable.RegisterReturning(w, child, func(_ context.Context, run *durable.Run[args]) (int64, error) {
			f.handled(run.Args.N)
			return run.Args.N, nil
		})
	case following, fanningIn:
		durable.Register(w, job, f.source)
		durable.Register(w, durable.NewJob[args](followerJob), f.follow)
		durable.Register(w, durable.NewJob[args](holdJob), hold)
	}
}

// waited is the instant that lies so far back.
func waited(d time.Duration) int64 { return time.Now().Add(-d).UnixNano() }

func (f *flowing) steps(ctx context.Context, run *durable.Run[args]) error {
	for i := range stepsEach {
		_, err := durable.Step(ctx, run, fmt.Sprint("step ", i), func(context.Context) (int, error) { return i, nil })
		if err != nil {
			return err
		}
	}
	f.handled(run.Args.N)
	return nil
}

// alone takes the time of each step, and of a commit after it.
func (f *flowing) alone(ctx context.Context, run *durable.Run[args]) error {
	conn, err := pgx.Connect(ctx, f.spec.Target)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for i := range stepsAlone {
		began := time.Now()
		_, err := durable.Step(ctx, run, fmt.Sprint("step ", i), func(context.Context) (int, error) { return i, nil })
		if err != nil {
			return err
		}
		f.handled(waited(time.Since(began)))
		began = time.Now()
		if _, err := conn.Exec(ctx, "INSERT INTO bench_commits (n) VALUES ($1)", i); err != nil {
			return err
		}
		f.handled(waited(time.Since(began)))
	}
	return nil
}

func (f *flowing) sleep(ctx context.Context, run *durable.Run[args]) error {
	began, until := time.Now(), time.Unix(0, run.Args.N)
	if err := run.SleepUntil(ctx, "until", until); err != nil {
		return err
	}
	f.handled(waited(began.Sub(until)))
	return nil
}

func (f *flowing) receive(ctx context.Context, run *durable.Run[args]) error {
	began := time.Now()
	sent, err := durable.Receive[int64](ctx, run, inputName, 0)
	if err != nil {
		return err
	}
	f.handled(waited(began.Sub(time.Unix(0, sent))))
	return nil
}

func (f *flowing) source(_ context.Context, run *durable.Run[args]) error {
	if !f.spec.Latency {
		f.handled(run.Args.N)
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.marks[run.Args.N]
	if seen.returned = time.Now(); seen.began.IsZero() {
		seen.began = seen.returned
	}
	f.marks[run.Args.N] = seen
	return nil
}

// follow measures from the last return of a source that has the same number.
func (f *flowing) follow(_ context.Context, run *durable.Run[args]) error {
	if !f.spec.Latency {
		f.handled(run.Args.N)
		return nil
	}
	f.mu.Lock()
	seen := f.marks[run.Args.N]
	f.mu.Unlock()
	f.handled(seen.returned.UnixNano())
	if f.spec.Flow == fanningIn {
		f.handled(seen.began.UnixNano())
	}
	return nil
}

// hold keeps its lease for so many nanoseconds.
func hold(ctx context.Context, run *durable.Run[args]) error {
	return pause(ctx, time.Duration(run.Args.N))
}
