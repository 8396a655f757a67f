package durable

import (
	"context"
	"time"
)

const (
	// materializeChunk bounds the schedules of one transaction, and so how
	// long their rows are locked.
	materializeChunk = 1000
	// lateness is how late an occurrence may be materialized before it counts
	// as missed and is skipped.
	lateness = time.Minute
)

// decide says what becomes of a schedule that is due at now, or not planned
// yet. It is pure.
func decide(now time.Time, s Schedule) Decision {
	rule, err := s.Rule.compile()
	if err != nil {
		return Decision{NextAt: s.NextAt, Fault: err.Error()}
	}
	decision := Decision{NextAt: rule.Next(now)}
	if s.NextAt.IsZero() || now.Sub(s.NextAt) > lateness {
		return decision
	}
	// At most one occurrence is due: what lies between it and now was missed.
	decision.Occurrences = []Occurrence{{Key: s.NextAt.UTC().Format(time.RFC3339Nano), Run: s.run(s.NextAt)}}
	return decision
}

// run makes the run of an occurrence.
func (s Schedule) run(due time.Time) NewRun {
	return NewRun{ID: NewRunID(), Job: s.Job, Queue: s.Queue, Priority: s.Priority, Args: s.Args, MaxAttempts: s.MaxAttempts,
		Timeout: s.Timeout, OnCrash: s.OnCrash, Tags: s.Tags, At: due}
}

// materializeLoop enqueues due occurrences until ctx ends. All workers run it;
// the store lets one evaluate at a time and the others look again later.
func (w *Worker) materializeLoop(ctx context.Context) {
	pause := time.Duration(0)
	for w.sleep(ctx, pause) {
		made, err := w.store.Materialize(ctx, materializeChunk, decide)
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

// declareLoop tells the store hourly what this worker declares. The first
// declaration has been made by Run.
func (w *Worker) declareLoop(ctx context.Context) {
	for w.sleep(ctx, time.Hour) {
		if err := w.declare(ctx); err != nil {
			w.warn(ctx, "declaration failed, will be tried again", err)
		}
	}
}

func (w *Worker) declare(ctx context.Context) error {
	declaration := Declaration{Worker: w.id, Schedules: w.schedules}
	for _, r := range w.jobs {
		declaration.Jobs = append(declaration.Jobs, r.info)
	}
	err := w.store.Declare(ctx, declaration)
	w.contact(err)
	return err
}
