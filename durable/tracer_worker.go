package durable

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// told calls the tracer, if there is one, and survives it: a panic, and the end
// of the goroutine that calls it.
func (w *Worker) told(call func(Tracer)) {
	if w.config.Tracer != nil {
		w.toldOf(1, func(t Tracer, _ int) { call(t) })
	}
}

// toldOf calls the tracer, which there is, n times, in a goroutine that may end in any of them:
// runtime.Goexit in a tracer must end no loop of the worker's.
func (w *Worker) toldOf(n int, call func(t Tracer, i int)) {
	t := w.config.Tracer
	for next := 0; next < n; {
		left := true
		var telling sync.WaitGroup
		telling.Go(func() {
			for next < n {
				next++
				w.calm(func() { call(t, next-1) })
			}
			left = false
		})
		if telling.Wait(); left {
			w.warn(context.Background(), "the tracer has ended its goroutine", errExited)
		}
	}
}

// calm calls the tracer in the goroutine of the caller's and survives a panic.
func (w *Worker) calm(call func()) {
	if value := quietly(call); value != nil {
		w.warn(context.Background(), "the tracer has panicked", fmt.Errorf("panic: %v", value))
	}
}

// traceExecute tells the tracer of an attempt that begins. ended must be called
// with what was decided.
func (x *execution) traceExecute(ctx context.Context) (within context.Context, ended func(store.Outcome)) {
	end := func(store.Outcome) {}
	within = ctx
	x.w.calm(func() {
		if c, f := x.w.config.Tracer.Execute(ctx, x.runInfo()); c != nil {
			within, end = c, orNothing(f)
		}
	})
	return within, func(o store.Outcome) {
		o.Result = nil
		x.w.calm(func() { end(o) })
	}
}

// traceSettled tells the tracer what the store made of outcomes.
func (w *Worker) traceSettled(batch []ended, verdicts []store.Verdict) {
	if w.config.Tracer == nil {
		return
	}
	w.toldOf(len(batch), func(t Tracer, i int) {
		e, verdict := &batch[i], verdicts[i]
		if verdict == store.Deferred {
			return
		}
		kind := e.outcome.Kind
		if verdict == store.AlreadyApplied && e.x.verifies() { // what has landed is the handler's commit
			kind = store.Success
		}
		t.RunSettled(RunVerdict{Run: e.x.runInfo(), Outcome: kind, Verdict: verdict})
	})
}

// traceLost tells the tracer that a run is lost to this worker.
func (x *execution) traceLost(kind LossKind) {
	x.w.told(func(t Tracer) {
		t.RunLost(RunLoss{Kind: kind, ID: x.run.ID, Job: x.job, Queue: x.queue, Worker: x.w.id.Name, CrashCount: x.run.CrashCount})
	})
}

// traceLost tells the tracer of the runs that a claim has lost while their
// handlers are executing.
func (c *claim) traceLost() {
	for i := range c.runs {
		if x := &c.runs[i]; x.begun.Load() && !x.returned.Load() {
			x.traceLost(LeaseLost)
		}
	}
}

// traceReclaimed tells the tracer of a run taken back from another worker.
func (w *Worker) traceReclaimed(r store.ReclaimedRun) {
	w.told(func(t Tracer) {
		t.RunLost(RunLoss{Kind: WorkerCrashed, ID: r.ID, Job: r.Job, Queue: r.Queue, Worker: r.Worker,
			CrashCount: r.CrashCount, Dead: r.State == Dead})
	})
}

// tracedStore is the store of a worker that has a tracer: it times the calls.
type tracedStore struct {
	Store

	w *Worker
}

// called tells of a call that began at an instant of the worker's clock.
func (s tracedStore) called(verb string, began time.Duration, runs int, err error) {
	took := s.w.config.Elapsed() - began
	s.w.told(func(t Tracer) { t.StoreCalled(StoreCall{Verb: verb, Runs: runs, Took: took, Err: err}) })
}

func (s tracedStore) now() time.Duration { return s.w.config.Elapsed() }

// Heads passes the call on.
func (s tracedStore) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	began := s.now()
	heads, err := s.Store.Heads(ctx, serves)
	s.called("heads", began, 0, err)
	return heads, err
}

// Claim passes the call on.
func (s tracedStore) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	began := s.now()
	runs, err := s.Store.Claim(ctx, request)
	s.called("claim", began, len(runs), err)
	return runs, err
}

// HandBack passes the call on.
func (s tracedStore) HandBack(ctx context.Context, request store.ClaimRequest) (int, error) {
	began := s.now()
	held, err := s.Store.HandBack(ctx, request)
	s.called("hand back", began, 0, err)
	return held, err
}

// Settle passes the call on.
func (s tracedStore) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	began, runs := s.now(), 0
	for i := range settlements {
		runs += len(settlements[i].Runs)
	}
	verdicts, err := s.Store.Settle(ctx, settlements)
	s.called("settle", began, runs, err)
	return verdicts, err
}

// Reclaim passes the call on.
func (s tracedStore) Reclaim(ctx context.Context, request store.ReclaimRequest) (store.ReclaimResult, error) {
	began := s.now()
	done, err := s.Store.Reclaim(ctx, request)
	s.called("reclaim", began, len(done.Runs), err)
	return done, err
}

// Renew passes the call on.
func (s tracedStore) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	began := s.now()
	renewed, err := s.Store.Renew(ctx, claims, d)
	s.called("renew", began, 0, err)
	return renewed, err
}

// Materialize passes the call on.
func (s tracedStore) Materialize(ctx context.Context, limit int, decide func(time.Time, store.Schedule) store.Decision) (store.MaterializeResult, error) {
	began := s.now()
	made, err := s.Store.Materialize(ctx, limit, decide)
	s.called("materialize", began, len(made.Runs), err)
	return made, err
}

// ReevaluateNow passes the call on.
func (s tracedStore) ReevaluateNow(ctx context.Context, names ...string) error {
	began := s.now()
	err := s.Store.ReevaluateNow(ctx, names...)
	s.called("hasten", began, 0, err)
	return err
}

// Declare passes the call on.
func (s tracedStore) Declare(ctx context.Context, declaration store.Declaration) error {
	began := s.now()
	err := s.Store.Declare(ctx, declaration)
	s.called("declare", began, 0, err)
	return err
}

// Touch passes the call on.
func (s tracedStore) Touch(ctx context.Context, worker store.WorkerID) error {
	began := s.now()
	err := s.Store.Touch(ctx, worker)
	s.called("touch", began, 0, err)
	return err
}
