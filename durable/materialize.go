package durable

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/internal/await"
	"github.com/durable-worker/durable-worker/internal/recur"
	"github.com/durable-worker/durable-worker/internal/saturate"
	"github.com/durable-worker/durable-worker/store"
)

// The schedules of one transaction, whose rows it locks: at least, and at most,
// as at first. Between these there are as many as take about materializeFor, and
// fewer after one that failed, down to one.
const (
	materializeLeast = 50
	materializeMost  = 500
	materializeFor   = 25 * time.Millisecond
)

// nextChunk is how many schedules to take per call after so many took a time.
func nextChunk(chunk int, took time.Duration) int {
	fit := 2 * chunk
	if took > materializeFor/2 {
		fit = int(int64(chunk) * int64(materializeFor) / int64(took))
	}
	return min(max(fit, chunk/2, materializeLeast), materializeMost)
}

// materializeMinPause is the pause before a schedule that is due, but whose row is
// locked, is asked for again.
const materializeMinPause = 10 * time.Millisecond

// idleFactor is how many poll intervals may pass between two evaluations
// when nothing is due sooner and the store reports changes immediately.
const idleFactor = 4

// materializeLoop enqueues due occurrences until ctx ends. All workers run it;
// the store lets one evaluate at a time and the others try again later.
func (w *Worker) materializeLoop(ctx context.Context) {
	first, second := newEvaluator(w), make(chan struct{})
	close(second) // no second evaluator runs next to this loop
	pause, hastened, rest := time.Duration(0), false, materializeMinPause
	for w.untilNext(ctx, pause) {
		hastened = w.hasten(ctx) || hastened // since the last evaluation that was not Busy
		select {
		case <-w.changes: // this evaluation sees them
		default:
		}
		made, more, err := first.evaluate(ctx)
		pause = w.nextPause(&made, err)
		switch {
		case err != nil:
		case more:
			pause, second = 0, w.evaluateBeside(ctx, second)
		case made.Busy && !isDone(second): // with all that is left, maybe
			<-second
			pause = 0
		case made.Busy && hastened: // the evaluator may have seen the run before it ended
			pause, rest = min(rest, pause), 2*rest
		default:
			hastened, rest = false, materializeMinPause
		}
	}
	<-second
}

// evaluateBeside has a second evaluator go through the schedules while more are
// due than one transaction takes, unless one does already, and returns what is
// closed when that has ended. How far it gets is the store's affair.
func (w *Worker) evaluateBeside(ctx context.Context, earlier chan struct{}) chan struct{} {
	if !isDone(earlier) {
		return earlier
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		e := newEvaluator(w)
		for more := true; more && ctx.Err() == nil; {
			_, more, _ = e.evaluate(ctx)
		}
	}()
	return done
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// evaluator decides about due schedules, some at a time.
type evaluator struct {
	w     *Worker
	plan  *recur.Planner
	chunk int // schedules of the next transaction
}

func newEvaluator(w *Worker) *evaluator {
	return &evaluator{w: w, plan: recur.NewPlanner(), chunk: materializeMost}
}

// evaluate materializes once, and reports whether there may be more immediately.
func (e *evaluator) evaluate(ctx context.Context) (made store.MaterializeResult, more bool, err error) {
	w := e.w
	bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
	e.plan.Begin(bounded)
	began := w.config.Elapsed()
	made, err = w.store.Materialize(bounded, e.chunk, e.plan.Decide)
	took := w.config.Elapsed() - began
	cancel()
	w.observeCall(err)
	if err != nil {
		w.warn(ctx, "schedule.failed", "materialize failed, will be retried", err)
		e.chunk = max(e.chunk/2, 1) // maybe it was more than a call has time for
	} else if made.Due == e.chunk {
		more, e.chunk = true, nextChunk(e.chunk, took)
	}
	w.passedOver("materialize", made.SetAside)
	w.await(ctx, made.Waits)
	if len(made.Runs) > 0 {
		w.config.Logger.Debug("occurrences materialized", "event", "schedule.fired", "runs", len(made.Runs))
		w.wake()
	}
	return made, more, err
}

// nextPause is how long after an evaluation of the schedules the next one is.
func (w *Worker) nextPause(made *store.MaterializeResult, err error) time.Duration {
	pause := w.jittered(w.config.PollInterval)
	switch {
	case err != nil:
		return w.jittered(min(w.config.PollInterval, time.Second))
	case made.Busy:
		w.config.Logger.Debug("another worker materializes, skipping", "event", "schedule.busy")
		return pause
	case w.listens.Load():
		pause = saturate.Times(idleFactor, pause)
	}
	if made.Next >= 0 {
		pause = min(pause, max(made.Next, materializeMinPause))
	}
	for i := range made.SetAside {
		pause = min(pause, max(made.SetAside[i].Again, time.Second))
	}
	return pause
}

// untilNext waits until the next evaluation of the schedules, and reports false
// when ctx ended. A signal that they may have changed makes it sooner, but no
// sooner than a poll interval after the last; a signal that a run has ended for
// which a schedule waits makes it immediate.
func (w *Worker) untilNext(ctx context.Context, pause time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	least := w.jittered(w.config.PollInterval)
	timer := time.NewTimer(min(pause, least))
	defer timer.Stop()
	var changes chan struct{} // heeded after a poll interval
	for {
		select {
		case <-ctx.Done():
			return false
		case <-w.waits.Ended:
			return w.sleep(ctx, await.Linger) // others may end with it
		case <-changes:
			return true
		case <-timer.C:
			if changes != nil || pause <= least {
				return true
			}
			changes = w.changes
			timer.Reset(pause - least)
		}
	}
}

// await asks the workers that execute runs to announce their ends.
func (w *Worker) await(ctx context.Context, list []store.WaitingSchedule) {
	if w.config.NoListen {
		return
	}
	for _, id := range w.waits.Found(list, w.config.Elapsed()) {
		if err := w.store.Publish(ctx, store.Signal{Kind: store.RunAwaited, Run: id}); err != nil {
			w.warn(ctx, "schedule.notice_failed", "requesting notice of a run's end failed, the schedule that waits for it is polled", err)
		}
	}
}

// hasten evaluates now the schedules for which a run has ended, and reports
// whether there are any. After an error the next regular evaluation finds them.
func (w *Worker) hasten(ctx context.Context) bool {
	ids, hastened := w.waits.Take(), false
	for len(ids) > 0 {
		some := ids[:min(len(ids), await.Batch)]
		ids = ids[len(some):]
		bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
		page, err := w.store.Runs(bounded, Filter{IDs: some, States: []State{Succeeded, Dead, Cancelled}, Limit: len(some)})
		if names := w.waits.Over(page.Runs); err == nil && len(names) > 0 {
			hastened = true
			err = w.store.ReevaluateNow(bounded, names...)
		}
		cancel()
		w.observeCall(err)
		if err != nil {
			w.warn(ctx, "schedule.reevaluation_failed", "re-evaluating schedules failed, they are polled", err)
		}
	}
	return hastened
}
