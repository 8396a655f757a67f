package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// progressEvery is the least time between two reports of one run's progress.
const progressEvery = time.Second

// Progress reports how far the run has come: fraction is 0 to 1, the note is for people and
// cut at store.MaxNoteSize. At most one report a second reaches the store; of those that
// come in between, the latest is sent when the second is over, unless the handler has
// returned by then: what is stored at the end may be up to a second old. The error is
// lease.ErrLost if the run no longer belongs to this attempt, ErrInvalid for a fraction out
// of range, or the store's. A handler may ignore it and continue. While your own
// transaction has guarded or completed the run, no report gets through: the error is then
// ErrConflict, after a wait.
func (r *Run[A]) Progress(ctx context.Context, fraction float64, note string) error {
	if !(fraction >= 0 && fraction <= 1) {
		return fmt.Errorf("progress: %w: %v: want 0 to 1", ErrInvalid, fraction)
	}
	fraction = math.Round(fraction*1e4) / 1e4
	note = storable.Text(note, store.MaxNoteSize)
	if err := r.execution.reporting().progress(ctx, store.Report{Fraction: &fraction, Note: &note}); err != nil {
		return fmt.Errorf("progress: %w", err)
	}
	return nil
}

// Checkpoint stores a JSON value with the run, in place of the one before. A later attempt,
// on any worker, reads it with LastCheckpoint and continues from there. When Checkpoint
// returns nil the value is stored durably; when it returns lease.ErrLost another worker may
// have the run, and nothing was stored. You can still store one after a drain has ended the
// context; it may then take half of CancelGrace. A store that does not answer is tried again
// for as long as a lease lasts, so a short outage costs no attempt. The loss of the lease
// ends the call; whether the value was stored is then unknown. It refuses the values that
// SetResult refuses, and fails with ErrConflict where Progress does.
func (r *Run[A]) Checkpoint(ctx context.Context, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("checkpoint: %w: %w", ErrInvalid, err)
	}
	if text, err = r.execution.seal(CheckpointPart, text); err != nil {
		return fmt.Errorf("checkpoint: %w: %w", ErrInvalid, err)
	}
	if err := store.CheckJSON(text); err != nil {
		return fmt.Errorf("checkpoint: %w%w", ErrInvalid, err)
	}
	if err := r.execution.reporting().checkpoint(ctx, text); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// LastCheckpoint decodes the run's last checkpoint, from this attempt or an earlier one, into
// value, and reports whether there is one.
func (r *Run[A]) LastCheckpoint(ctx context.Context, value any) (bool, error) {
	w := r.execution.w
	ctx, cancel := context.WithTimeout(ctx, w.callTimeout())
	defer cancel()
	text, err := w.store.Checkpoint(ctx, r.ID)
	if err != nil {
		return false, fmt.Errorf("last checkpoint: %w", err)
	}
	if text == nil {
		return false, nil
	}
	if text, err = r.execution.unseal(CheckpointPart, text); err != nil {
		return false, fmt.Errorf("last checkpoint: %w", err)
	}
	if err := json.Unmarshal(text, value); err != nil {
		return false, fmt.Errorf("last checkpoint: %w", err)
	}
	return true, nil
}

// reports sends what one execution says of itself, one report after another, so
// that they arrive in order. No mutex is held while the store is called: who
// waits for its turn obeys its context.
type reports struct {
	w      *Worker
	holder store.Holder
	ctx    context.Context // ends with the execution, and when its lease is lost
	cancel context.CancelFunc
	turn   chan struct{} // full while a report is under way

	mu     sync.Mutex
	kept   *store.Report // a progress that waits for its second to be over
	sentAt time.Duration
	sent   bool
	timer  *time.Timer
	ended  bool
}

// reporting returns the execution's reports, created on first use.
func (x *execution) reporting() *reports {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.reports == nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(x.claim.ctx))
		stop := context.AfterFunc(x.claim.ctx, func() {
			if errors.Is(context.Cause(x.claim.ctx), lease.ErrLost) {
				cancel()
			}
		})
		x.reports = &reports{w: x.w, holder: store.Holder{Run: x.run.ID, Claim: x.claim.id}, ctx: ctx, cancel: func() { stop(); cancel() },
			turn: make(chan struct{}, 1), ended: x.returned.Load()}
	}
	return x.reports
}

// endReports ends the reports, if there are any, and lets go of what the outcome
// has taken over.
func (x *execution) endReports() {
	x.mu.Lock()
	r := x.reports
	x.result, x.lines = nil, nil // its outcome has them
	x.mu.Unlock()
	if r != nil {
		r.end()
	}
}

// progress sends a report, or keeps it when one has been sent within the second
// or is under way.
func (r *reports) progress(ctx context.Context, report store.Report) error {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return lease.ErrLost
	}
	wait := r.sentAt + progressEvery - r.w.config.Elapsed()
	if !r.sent {
		wait = 0
	}
	if wait <= 0 && r.begin() {
		r.note()
		r.mu.Unlock()
		return r.send(ctx, report)
	}
	defer r.mu.Unlock()
	r.kept = &report
	r.later(wait)
	return nil
}

// begin takes the turn if it is free.
func (r *reports) begin() bool {
	select {
	case r.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// note notes that a progress is sent, and none is kept. r.mu is held.
func (r *reports) note() { r.sentAt, r.sent, r.kept = r.w.config.Elapsed(), true, nil }

// later has the progress that is kept sent after a while. r.mu is held.
func (r *reports) later(wait time.Duration) {
	if r.timer == nil {
		r.timer = time.AfterFunc(max(wait, 0), r.flush)
	}
}

func (r *reports) checkpoint(ctx context.Context, text []byte) error {
	ctx, cancel := r.bounded(ctx, max(r.w.config.Terms.Duration, r.w.callTimeout()))
	defer cancel()
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		if r.ctx.Err() != nil {
			return lease.ErrLost
		}
		return fmt.Errorf("an earlier report is under way: %w", context.Cause(ctx))
	}
	report := store.Report{Checkpoint: text}
	r.mu.Lock()
	if r.kept != nil {
		report.Fraction, report.Note = r.kept.Fraction, r.kept.Note
		r.note()
	}
	r.mu.Unlock()
	defer func() { <-r.turn }()
	failed := func(err error) {
		r.w.warn(r.ctx, "run.checkpoint_failed", "storing a checkpoint failed, will be retried", err)
	}
	return r.sendAgain(ctx, failed, func(ctx context.Context) error { return r.reportOnce(ctx, report) })
}

// Pauses between the tries to store a checkpoint, and how many fail before the
// store is asked whether it answers at all.
const (
	checkpointPause   = 50 * time.Millisecond
	checkpointLongest = time.Second
	checkpointTries   = 4
)

// sendAgain sends something until the store takes it, ctx ends, or the store refuses
// it although it answers. What is repeated changes nothing. failed is called after the first
// failure.
func (r *reports) sendAgain(ctx context.Context, failed func(error), once func(context.Context) error) error {
	pause := checkpointPause
	for try := 1; ; try++ {
		err := once(ctx)
		switch {
		case err == nil || store.IsRefusal(err):
			return err
		case r.leaseGone(ctx):
			return lease.ErrLost
		case ctx.Err() != nil:
			return err
		}
		if try >= checkpointTries && r.storeAnswers(ctx) {
			return err
		}
		if try == 1 {
			failed(err)
		}
		r.w.sleep(ctx, r.w.jittered(pause))
		pause = min(2*pause, checkpointLongest)
	}
}

// leaseGone reports whether the execution, or its lease, has ended.
func (r *reports) leaseGone(ctx context.Context) bool {
	return r.ctx.Err() != nil || errors.Is(context.Cause(ctx), lease.ErrLost)
}

// storeAnswers reports whether the store answers to a question.
func (r *reports) storeAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, r.w.callTimeout())
	defer cancel()
	_, err := r.w.store.Checkpoint(ctx, r.holder.Run)
	return err == nil
}

// flush sends the progress that has waited.
func (r *reports) flush() {
	select {
	case r.turn <- struct{}{}:
	case <-r.ctx.Done():
		return
	}
	r.mu.Lock()
	r.timer = nil
	kept := r.kept
	if kept != nil {
		r.note()
	}
	r.mu.Unlock()
	if kept == nil {
		<-r.turn
		return
	}
	if err := r.send(r.ctx, *kept); err != nil && !errors.Is(err, lease.ErrLost) {
		r.w.warn(r.ctx, "run.progress_failed", "storing the progress of a run failed", err)
	}
}

// bounded is the context of calls of the store: it ends with the execution, with
// its lease, at the limit, and with the caller's context unless that has ended for a drain. A
// checkpoint is the last thing to do before the run is handed back then; half the
// grace is left for the handler to return in.
func (r *reports) bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if errors.Is(context.Cause(ctx), ErrDraining) {
		ctx, limit = context.WithoutCancel(ctx), min(limit, max(r.w.config.CancelGrace, time.Second)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(r.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// send makes one call of the store. The caller has the turn, which ends with it.
func (r *reports) send(ctx context.Context, report store.Report) error {
	defer func() { <-r.turn }()
	return r.reportOnce(ctx, report)
}

// reportOnce is send for a caller that keeps the turn.
func (r *reports) reportOnce(ctx context.Context, report store.Report) error {
	r.mu.Lock()
	ended := r.ended
	r.mu.Unlock()
	if ended || r.leaseGone(ctx) {
		return lease.ErrLost
	}
	ctx, cancel := r.bounded(ctx, r.w.callTimeout())
	defer cancel()
	err := r.w.store.Report(ctx, r.holder, report)
	if errors.Is(err, lease.ErrLost) {
		return lease.ErrLost
	}
	return err
}

// end waits for the report under way, which its context ends, and lets no other
// be sent.
func (r *reports) end() {
	r.mu.Lock()
	r.ended = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	r.cancel()
	r.turn <- struct{}{}
	<-r.turn
}
