package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// MaxNoteSize bounds the note of a progress, in bytes.
const MaxNoteSize = 1 << 10

// progressEvery is the least time between two reports of one run's progress.
const progressEvery = time.Second

// Progress is how far a run says it has come.
type Progress struct {
	Fraction float64   `json:"fraction"` // 0 to 1, kept to four decimals
	Note     string    `json:"note"`
	At       time.Time `json:"at"` // of the last report, a checkpoint included
}

// Report is what a running handler says of itself. What is nil is left as it
// is stored.
type Report struct {
	Fraction   *float64 // 0 to 1
	Note       *string  // valid UTF-8 without NUL
	Checkpoint []byte   // JSON
}

// Reporter keeps what running handlers say of themselves. It outlives the
// attempt.
type Reporter interface {
	// Report stores a report, unless the run is no longer running under the
	// holder's claim: then nothing is stored and the error is lease.ErrLost. It
	// answers ErrConflict, and stores nothing, when somebody else, such as a
	// transaction of the holder's own, keeps the run locked.
	Report(ctx context.Context, holder Holder, report Report) error
	// Checkpoint returns the run's last checkpoint, or nil.
	Checkpoint(ctx context.Context, id RunID) ([]byte, error)
}

// Progress tells how far the run has come: fraction is 0 to 1, the note is for
// people and cut at MaxNoteSize. At most one report a second reaches the store;
// of those that come in between, the latest is sent when the second is over, by
// itself, unless the handler has returned by then: what is stored at the end may
// be up to a second old. The error is lease.ErrLost when the run is no longer
// this attempt's, ErrInvalid for a fraction out of range, or that of the store.
// A handler may go on without its progress being known. While a transaction of
// the handler's own has guarded or completed the run, no report gets through: the
// error is then ErrConflict, after a wait.
func (r *Run[A]) Progress(ctx context.Context, fraction float64, note string) error {
	if !(fraction >= 0 && fraction <= 1) {
		return fmt.Errorf("%w: progress %v: want 0 to 1", ErrInvalid, fraction)
	}
	fraction = math.Round(fraction*1e4) / 1e4
	note = storableIn(note, MaxNoteSize)
	return r.execution.reporting().progress(ctx, Report{Fraction: &fraction, Note: &note})
}

// Checkpoint stores a JSON value with the run, in place of the one before. A
// later attempt, on whatever worker, reads it with LastCheckpoint and goes on
// from there. When Checkpoint returns nil the value is stored durably; when it
// returns lease.ErrLost another worker may have the run, and nothing was stored.
// A context that a drain has ended does not keep it from storing. It refuses
// what SetResult refuses, and fails with ErrConflict where Progress does.
func (r *Run[A]) Checkpoint(ctx context.Context, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%w: checkpoint: %w", ErrInvalid, err)
	}
	if text, err = r.execution.seal(CheckpointPart, text); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := checkJSON(text, false); err != nil {
		return fmt.Errorf("%w: checkpoint%w", ErrInvalid, err)
	}
	return r.execution.reporting().checkpoint(ctx, text)
}

// LastCheckpoint decodes the run's last checkpoint, of this attempt or of one
// before it, into value, and reports whether there is one.
func (r *Run[A]) LastCheckpoint(ctx context.Context, value any) (bool, error) {
	w := r.execution.w
	ctx, cancel := context.WithTimeout(ctx, w.callTimeout())
	defer cancel()
	text, err := w.store.Checkpoint(ctx, r.ID)
	if err != nil {
		return false, err
	}
	if text == nil {
		return false, nil
	}
	if text, err = r.execution.unseal(CheckpointPart, text); err != nil {
		return false, fmt.Errorf("last checkpoint: %w", err)
	}
	if err := json.Unmarshal(text, value); err != nil {
		return false, fmt.Errorf("decode checkpoint: %w", err)
	}
	return true, nil
}

// reports sends what one execution says of itself. The mutex is held while the
// store is called: a run's reports arrive in order.
type reports struct {
	w      *Worker
	holder Holder
	ctx    context.Context // ends with the execution
	cancel context.CancelFunc

	mu     sync.Mutex
	kept   *Report // a progress that waits for its second to be over
	sentAt time.Duration
	sent   bool
	timer  *time.Timer
	ended  bool
}

// reporting returns the execution's reports, made when they are first asked for.
func (x *execution) reporting() *reports {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.reports == nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(x.claim.ctx))
		x.reports = &reports{w: x.w, holder: Holder{Run: x.run.ID, Claim: x.claim.id}, ctx: ctx, cancel: cancel, ended: x.returned.Load()}
	}
	return x.reports
}

// endReports ends the reports, if there are any.
func (x *execution) endReports() {
	x.mu.Lock()
	r := x.reports
	x.mu.Unlock()
	if r != nil {
		r.end()
	}
}

func (r *reports) progress(ctx context.Context, report Report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return lease.ErrLost
	}
	wait := r.sentAt + progressEvery - r.w.config.Elapsed()
	if !r.sent || wait <= 0 {
		return r.send(ctx, report)
	}
	r.kept = &report
	if r.timer == nil {
		r.timer = time.AfterFunc(wait, r.flush)
	}
	return nil
}

func (r *reports) checkpoint(ctx context.Context, text []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return lease.ErrLost
	}
	report := Report{Checkpoint: text}
	if r.kept != nil {
		report.Fraction, report.Note = r.kept.Fraction, r.kept.Note
	}
	return r.send(ctx, report)
}

// flush sends the progress that has waited.
func (r *reports) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = nil
	if r.kept == nil || r.ended {
		return
	}
	if err := r.send(r.ctx, *r.kept); err != nil && !errors.Is(err, lease.ErrLost) {
		r.w.warn(r.ctx, "storing the progress of a run failed", err)
	}
}

// send makes one call of the store. The caller holds the mutex.
func (r *reports) send(ctx context.Context, report Report) error {
	if errors.Is(context.Cause(ctx), ErrDraining) {
		ctx = context.WithoutCancel(ctx) // the last thing to do before the run is handed back
	}
	ctx, cancel := context.WithTimeout(ctx, r.w.callTimeout())
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	if report.Fraction != nil {
		r.sentAt, r.sent, r.kept = r.w.config.Elapsed(), true, nil
	}
	err := r.w.store.Report(ctx, r.holder, report)
	if errors.Is(err, lease.ErrLost) {
		return lease.ErrLost
	}
	return err
}

// end waits for the report under way and lets no other be sent.
func (r *reports) end() {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.timer != nil {
		r.timer.Stop()
	}
}
