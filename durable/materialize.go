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

// materializeLoop enqueues due occurrences until ctx ends. All workers run it;
// the store lets one evaluate at a time and the others look again later.
func (w *Worker) materializeLoop(ctx context.Context) {
	plan := planner{rules: map[string]cron.Rule{}}
	pause := time.Duration(0)
	for w.sleep(ctx, pause) {
		plan.room = materializeRoom
		bounded, cancel := context.WithTimeout(ctx, w.callTimeout())
		made, err := w.store.Materialize(bounded, materializeChunk, plan.decide)
		cancel()
		w.contact(err)
		pause = w.jittered(w.config.PollInterval)
		switch {
		case err != nil:
			w.warn(ctx, "materialize failed, will be tried again", err)
			pause = w.jittered(min(w.config.PollInterval, time.Second))
		case made.Busy:
			w.config.Logger.Debug("another worker materializes, skipping")
		case made.Due == materializeChunk:
			pause = 0
		case made.Next >= 0:
			pause = min(pause, max(made.Next, materializeLeast))
		}
		if len(made.Runs) > 0 {
			w.config.Logger.Debug("occurrences materialized", "runs", len(made.Runs))
			w.wake()
		}
	}
}
