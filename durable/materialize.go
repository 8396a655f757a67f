package durable

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/internal/cron"
)

// materializeChunk bounds the schedules of one transaction, and so how long
// their rows are locked.
const materializeChunk = 1000

// materializeLeast keeps a schedule that is due and cannot be had, for its row
// is locked, from being asked for without a pause.
const materializeLeast = 10 * time.Millisecond

// materializeCalm is how many poll intervals may pass between two looks when
// nothing is due sooner and the store tells of changes at once.
const materializeCalm = 4

// materializeLoop enqueues due occurrences until ctx ends. All workers run it;
// the store lets one evaluate at a time and the others look again later.
func (w *Worker) materializeLoop(ctx context.Context) {
	plan := planner{rules: map[string]cron.Rule{}}
	pause := time.Duration(0)
	for w.untilLook(ctx, pause) {
		select {
		case <-w.changes: // this look sees them
		default:
		}
		plan.room = materializeRoom
		bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
		made, err := w.store.Materialize(bounded, materializeChunk, plan.decide)
		cancel()
		w.contact(err)
		if err != nil {
			w.warn(ctx, "materialize failed, will be tried again", err)
		}
		pause = w.lookPause(&made, err)
		if len(made.Runs) > 0 {
			w.config.Logger.Debug("occurrences materialized", "runs", len(made.Runs))
			w.wake()
		}
	}
}

// lookPause is how long after a look at the schedules the next one is.
func (w *Worker) lookPause(made *Materialized, err error) time.Duration {
	pause := w.jittered(w.config.PollInterval)
	switch {
	case err != nil:
		return w.jittered(min(w.config.PollInterval, time.Second))
	case made.Busy:
		w.config.Logger.Debug("another worker materializes, skipping")
		return pause
	case made.Due == materializeChunk:
		return 0
	case w.listens.Load():
		pause *= materializeCalm
	}
	if made.Next >= 0 {
		pause = min(pause, max(made.Next, materializeLeast))
	}
	return pause
}

// untilLook waits until the next look at the schedules, and reports false when
// ctx ended. A signal that they may have changed makes it sooner, but no sooner
// than a poll interval after the last.
func (w *Worker) untilLook(ctx context.Context, pause time.Duration) bool {
	least := w.jittered(w.config.PollInterval)
	if pause <= least {
		return w.sleep(ctx, pause)
	}
	if !w.sleep(ctx, least) {
		return false
	}
	timer := time.NewTimer(pause - least)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-w.changes:
	}
	return true
}

// tellChanges has the schedules looked at, when the last look is a poll interval
// ago. It never waits.
func (w *Worker) tellChanges() {
	select {
	case w.changes <- struct{}{}:
	default:
	}
}
