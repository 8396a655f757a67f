package durable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// notify calls hooks, which there are, n times, and survives their panics. They run
// in a goroutine that may end in any of them: runtime.Goexit in a hook must end no
// loop of the worker's.
func (w *Worker) notify(n int, call func(i int)) {
	for next := 0; next < n; {
		left := true
		var notifying sync.WaitGroup
		notifying.Go(func() {
			for next < n {
				next++
				w.calm(func() { call(next - 1) })
			}
			left = false
		})
		if notifying.Wait(); left {
			w.warn(context.Background(), "hook.exited", "a hook has ended its goroutine", errExited)
		}
	}
}

// calm calls a hook in the caller's goroutine and survives a panic.
func (w *Worker) calm(call func()) {
	if value := quietly(call); value != nil {
		w.warn(context.Background(), "hook.panicked", "a hook has panicked", fmt.Errorf("panic: %v", value))
	}
}

// observeExecute calls the hook, which there is, for an attempt that begins. ended, which
// is nil where the hook does not ask for it, must be called with what was decided.
func (x *execution) observeExecute(ctx context.Context) (within context.Context, ended func(store.Outcome)) {
	var end func(observe.ExecuteEnd)
	within = ctx
	x.w.calm(func() { within, end = begun(ctx, observe.ExecuteStart{Run: x.runInfo()}, x.w.config.Hooks.Execute) })
	if end == nil { // as for most traces, which are not taken
		return within, nil
	}
	return within, func(o store.Outcome) {
		o.Result = nil
		x.w.calm(func() { end(observe.ExecuteEnd{Outcome: o, Parks: x.parks(o.Kind)}) })
	}
}

// parks are the waits because of which the run is put back.
func (x *execution) parks(kind store.OutcomeKind) (parks []observe.Park) {
	if kind != store.Snoozed {
		return nil
	}
	for _, p := range x.begunBook().Parks() {
		park := observe.Park{Step: p.Name, Kind: p.Kind, In: p.Until}
		if p.Until >= 0 {
			park.In = max(p.Until-x.w.config.Elapsed(), 0)
		}
		parks = append(parks, park)
	}
	return parks
}

// observeStep calls the hook for a step that is about to be executed. ended must be called with how
// that went.
func (x *execution) observeStep(ctx context.Context, name string, try int) (within context.Context, ended func(observe.StepResult, error)) {
	if x.w.config.Hooks.Step == nil {
		return ctx, func(observe.StepResult, error) {}
	}
	var end func(observe.StepEnd)
	within = ctx
	x.w.calm(func() {
		within, end = begun(ctx, observe.StepStart{Run: x.runInfo(), Name: name, Try: try}, x.w.config.Hooks.Step)
	})
	return within, func(result observe.StepResult, err error) {
		if end != nil {
			x.w.calm(func() { end(observe.StepEnd{Result: result, Err: err}) })
		}
	}
}

// observeSettled counts what the store answered to outcomes, and calls the hook.
func (w *Worker) observeSettled(batch []ended, verdicts []store.Verdict) {
	for i := range batch {
		w.observeFailure(&batch[i], verdicts[i])
		if verdicts[i] != store.Deferred {
			batch[i].x.counts.Settled(batch[i].kind(verdicts[i]), verdicts[i])
		}
	}
	hook := w.config.Hooks.RunSettled
	if hook == nil {
		return
	}
	w.notify(len(batch), func(i int) {
		if verdicts[i] != store.Deferred {
			hook(batch[i].verdict(verdicts[i]))
		}
	})
}

// reportFailures calls RunFailed for what has failed, until close or until ctx ends.
func (w *Worker) reportFailures(ctx context.Context) {
	for {
		all, dropped, closed := w.failures.take()
		if dropped > 0 {
			w.config.Logger.Error("failures not reported to the hook: too many are waiting for it", "event", "hook.failures_dropped", "dropped", dropped)
		}
		w.notify(len(all), func(i int) {
			if ctx.Err() == nil {
				w.reportFailure(ctx, &all[i])
			}
		})
		switch {
		case closed && len(all) == 0:
			return
		case closed:
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-w.failures.signal:
		}
	}
}

func (w *Worker) reportFailure(ctx context.Context, one *failureEvent) {
	ctx, cancel := context.WithTimeout(ctx, failureLimit)
	defer cancel()
	failure := one.known
	asking, stop := context.WithTimeout(ctx, w.callTimeout())
	defer stop()
	if record, err := w.store.Run(asking, one.id); err == nil {
		failure.Record = record
	} else {
		w.warn(ctx, "hook.record_missing", "reading the record of a failed run failed; the hook gets an incomplete one", err)
	}
	if failure.Err == nil {
		reason := one.reason
		if failure.Record.Error != nil {
			reason = *failure.Record.Error
		}
		failure.Err = errors.New(reason)
	}
	w.config.Hooks.RunFailed(ctx, failure)
}

// observeFailure has the hook called for an outcome that the store has taken.
func (w *Worker) observeFailure(e *ended, verdict store.Verdict) {
	kind := e.outcome.Kind
	if w.config.Hooks.RunFailed == nil || kind != store.Failure && kind != store.Death {
		return
	}
	if verdict != store.Applied && (verdict != store.AlreadyApplied || e.x.verifies()) { // the latter is a repeat
		return
	}
	info, text := e.x.runInfo(), e.outcome.Error
	e.x.mu.Lock()
	err := e.x.handlerErr
	e.x.mu.Unlock()
	w.failures.add(failureEvent{id: info.ID, reason: text, known: observe.RunFailure{Err: err, Stack: e.outcome.Stack, Dead: kind == store.Death, Record: Record{
		ID: info.ID, Job: info.Job, Queue: info.Queue, State: kind.State(), Attempt: info.Attempt, MaxAttempts: info.MaxAttempts, Error: &text,
	}}})
}

// observeCrash has the hook called for a run that a crash has ended.
func (w *Worker) observeCrash(r store.ReclaimedRun) {
	if w.config.Hooks.RunFailed != nil && r.State == Dead {
		w.failures.add(failureEvent{id: r.ID, reason: "its worker crashed", known: observe.RunFailure{Dead: true, Crash: true, Record: Record{
			ID: r.ID, Job: r.Job, Queue: r.Queue, State: r.State, CrashCount: r.CrashCount,
		}}})
	}
}

// keepFailure keeps what the handler returned, for the hooks; the first counts.
func (x *execution) keepFailure(err error) {
	if x.w.config.Hooks.RunFailed == nil && x.w.config.Hooks.RunSettled == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.handlerErr == nil {
		x.handlerErr = err
	}
}

// verdict is what hooks see of an outcome.
func (e *ended) verdict(verdict store.Verdict) observe.RunVerdict {
	v := observe.RunVerdict{Run: e.x.runInfo(), Outcome: e.kind(verdict), Verdict: verdict, Took: e.outcome.Took}
	if v.Outcome == e.outcome.Kind {
		v.After, v.Error, v.Parks = e.outcome.After, e.outcome.Error, e.x.parks(v.Outcome)
	}
	if v.Outcome == store.Failure || v.Outcome == store.Death || v.Outcome == store.Misfit {
		e.x.mu.Lock()
		v.Err = e.x.handlerErr
		e.x.mu.Unlock()
	}
	return v
}

// kind is the kind of the outcome that the store has.
func (e *ended) kind(verdict store.Verdict) store.OutcomeKind {
	if verdict == store.AlreadyApplied && e.x.verifies() { // what was applied is the handler's commit
		return store.Success
	}
	return e.outcome.Kind
}

// observeLoss calls the hook for a run that is lost.
func (w *Worker) observeLoss(loss observe.RunLoss) {
	if hook := w.config.Hooks.RunLost; hook != nil {
		w.notify(1, func(int) { hook(loss) })
	}
}

// observeLost reports a run that is lost to this worker.
func (x *execution) observeLost(kind observe.LossKind) {
	x.w.observeLoss(observe.RunLoss{Kind: kind, ID: x.run.ID, Job: x.job, Queue: x.queue, Worker: x.w.id.Name, CrashCount: x.run.CrashCount})
}

// observeLost reports the runs that a claim has lost while their handlers are
// executing.
func (c *claim) observeLost() {
	for i := range c.runs {
		if x := &c.runs[i]; x.begun.Load() && !x.returned.Load() {
			x.observeLeaseLost()
		}
	}
}

// observeLeaseLost reports the loss of a lease while the handler was executing, once.
func (x *execution) observeLeaseLost() {
	if x.lossSeen.CompareAndSwap(false, true) {
		x.observeLost(observe.LeaseLost)
	}
}

// observeInterrupted is observeLeaseLost for a handler that returns because its lease
// was lost: it may return before the claim has reported the loss.
func (x *execution) observeInterrupted(kind store.OutcomeKind) {
	if kind != store.Success && errors.Is(context.Cause(x.claim.ctx), lease.ErrLost) {
		x.observeLeaseLost()
	}
}

// observeReclaimed reports a run reclaimed from another worker.
func (w *Worker) observeReclaimed(r store.ReclaimedRun) {
	w.observeCrash(r)
	w.observeLoss(observe.RunLoss{Kind: observe.WorkerCrashed, ID: r.ID, Job: r.Job, Queue: r.Queue, Worker: r.Worker,
		CrashCount: r.CrashCount, Dead: r.State == Dead})
}

// observedStore is the store of a worker: it times the calls.
type observedStore struct {
	Store

	w *Worker
}

// called reports a call that began at an instant of the worker's clock.
func (s observedStore) called(verb string, began time.Duration, runs int, err error) {
	s.report(observe.StoreCall{Verb: verb, Runs: runs, Took: s.w.config.Elapsed() - began, Err: err})
}

// report counts a call, and calls the hook.
func (s observedStore) report(call observe.StoreCall) {
	s.w.counts.StoreCalled(call)
	if hook := s.w.config.Hooks.StoreCalled; hook != nil {
		s.w.notify(1, func(int) { hook(call) })
	}
}

func (s observedStore) now() time.Duration { return s.w.config.Elapsed() }

// Heads passes the call on.
func (s observedStore) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	began := s.now()
	heads, err := s.Store.Heads(ctx, serves)
	s.called("heads", began, 0, err)
	return heads, err
}

// Claim passes the call on.
func (s observedStore) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	began := s.now()
	runs, err := s.Store.Claim(ctx, request)
	call := observe.StoreCall{Verb: "claim", Runs: len(runs), Took: s.now() - began, Err: err}
	if s.w.config.Hooks.StoreCalled != nil {
		call.Traces = traced(runs)
	}
	s.report(call)
	return runs, err
}

// tracedMost bounds StoreCall.Traces.
const tracedMost = 32

// traced are the traces of the first runs that have one.
func traced(runs []store.ClaimedRun) (traces []string) {
	for i := 0; i < len(runs) && len(traces) < tracedMost; i++ {
		if runs[i].Trace != "" {
			traces = append(traces, runs[i].Trace)
		}
	}
	return traces
}

// HandBack passes the call on.
func (s observedStore) HandBack(ctx context.Context, request store.ClaimRequest) (int, error) {
	began := s.now()
	held, err := s.Store.HandBack(ctx, request)
	s.called("hand back", began, 0, err)
	return held, err
}

// Settle passes the call on.
func (s observedStore) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	began, runs := s.now(), 0
	for i := range settlements {
		runs += len(settlements[i].Runs)
	}
	verdicts, err := s.Store.Settle(ctx, settlements)
	s.called("settle", began, runs, err)
	return verdicts, err
}

// Reclaim passes the call on.
func (s observedStore) Reclaim(ctx context.Context, request store.ReclaimRequest) (store.ReclaimResult, error) {
	began := s.now()
	done, err := s.Store.Reclaim(ctx, request)
	s.called("reclaim", began, len(done.Runs), err)
	return done, err
}

// Renew passes the call on.
func (s observedStore) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	began := s.now()
	renewed, err := s.Store.Renew(ctx, claims, d)
	s.called("renew", began, 0, err)
	return renewed, err
}

// Materialize passes the call on.
func (s observedStore) Materialize(ctx context.Context, limit int, decide func(time.Time, store.Schedule) store.Decision) (store.MaterializeResult, error) {
	began := s.now()
	made, err := s.Store.Materialize(ctx, limit, decide)
	s.called("materialize", began, len(made.Runs), err)
	return made, err
}

// ReevaluateNow passes the call on.
func (s observedStore) ReevaluateNow(ctx context.Context, names ...string) error {
	began := s.now()
	err := s.Store.ReevaluateNow(ctx, names...)
	s.called("reevaluate", began, 0, err)
	return err
}

// RecordSteps passes the call on.
func (s observedStore) RecordSteps(ctx context.Context, steps []store.NewStep) ([]store.StepVerdict, error) {
	began := s.now()
	verdicts, err := s.Store.RecordSteps(ctx, steps)
	s.called("record steps", began, len(steps), err)
	return verdicts, err
}

// Release passes the call on.
func (s observedStore) Release(ctx context.Context, request store.ReleaseRequest) (store.ReleaseResult, error) {
	began := s.now()
	result, err := s.Store.Release(ctx, request)
	s.called("release", began, result.Released, err)
	return result, err
}

// Declare passes the call on.
func (s observedStore) Declare(ctx context.Context, declaration store.Declaration) error {
	began := s.now()
	err := s.Store.Declare(ctx, declaration)
	s.called("declare", began, 0, err)
	return err
}

// Touch passes the call on.
func (s observedStore) Touch(ctx context.Context, worker store.WorkerID) error {
	began := s.now()
	err := s.Store.Touch(ctx, worker)
	s.called("touch", began, 0, err)
	return err
}
