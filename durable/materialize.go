package durable

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/internal/cron"
)

// materializeChunk bounds the schedules of one transaction, and so how long
// their rows are locked.
const materializeChunk = 1000

// materializeLoop enqueues due occurrences until ctx ends. All workers run it;
// the store lets one evaluate at a time and the others look again later.
func (w *Worker) materializeLoop(ctx context.Context) {
	plan := planner{rules: map[string]cron.Rule{}}
	pause := time.Duration(0)
	for w.sleep(ctx, pause) {
		plan.room = materializeRoom
		made, err := w.store.Materialize(ctx, materializeChunk, plan.decide)
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
			pause = min(pause, made.Next)
		}
		if len(made.Runs) > 0 {
			w.config.Logger.Debug("occurrences materialized", "runs", len(made.Runs))
			w.wake()
		}
	}
}
