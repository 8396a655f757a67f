package durable

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/internal/protocol"
	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
)

// link is what the worker knows of its connection to the store.
//
// Reads and writes are tracked separately. A full disk, or a server that has become
// read-only, answers every read: owners cannot renew all the same, and what
// protects them is decided by writes alone (protocol.Takeover).
type link struct {
	mu       sync.Mutex
	answered time.Duration // monotonic time when the store last answered
	silent   bool          // the last call failed
	refused  bool          // the last write failed
	takeover protocol.Takeover
	warned   map[string]warning // by message
	partly   atomic.Bool        // the last declaration was refused in part
}

func (l *link) init(terms lease.Terms) {
	l.takeover = protocol.Takeover{
		Hold: min(terms.Duration, 10*time.Second), OutageHold: min(terms.Duration/3, 10*time.Second),
		Gap: terms.Duration / 2, Slack: 2 * time.Second,
	}
}

// contact records how a call of the store ended.
func (w *Worker) contact(err error) {
	now := w.config.Elapsed()
	l := &w.link
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contact(now, err)
}

// contact is Worker.contact; l.mu is held.
func (l *link) contact(now time.Duration, err error) {
	if err != nil {
		l.silent = !errors.Is(err, context.Canceled)
		return
	}
	l.answered, l.silent = now, false
}

// contactWrite records how a write ended that was sent at an instant, and how
// many rows it has certainly written: a call that found nothing to change says
// nothing about writes.
func (w *Worker) contactWrite(sent time.Duration, written int, err error) {
	now := w.config.Elapsed()
	l := &w.link
	l.mu.Lock()
	defer l.mu.Unlock()
	l.contact(now, err)
	switch {
	case err != nil:
		l.refused = l.refused || !errors.Is(err, context.Canceled)
	case written > 0:
		l.refused = false
		l.takeover.Wrote(sent, now)
	}
}

// cutOff reports whether the store has been silent for so long that the leases
// of living workers may have run out.
func (w *Worker) cutOff() bool {
	w.link.mu.Lock()
	defer w.link.mu.Unlock()
	return w.link.silent && w.config.Elapsed()-w.link.answered > w.config.Terms.Duration/3
}

// warning is what was last logged of one message.
type warning struct {
	at   time.Duration // monotonic time
	full time.Duration // likewise: when the error was last logged in full
	text string
}

const (
	// warnEvery is the least time between two lines of one message.
	warnEvery = time.Second
	// warnFull is how often an error that stays the same is logged in full, and
	// warnShort the bytes of it that are logged between.
	warnFull  = time.Minute
	warnShort = 80
)

// warn logs a failure that is tried again, each message at most once a second. An
// error that stays the same is long once a minute and short in between.
func (w *Worker) warn(ctx context.Context, message string, err error) {
	if errors.Is(ctx.Err(), context.Canceled) { // whatever its cause: the worker is stopping
		return
	}
	now, text := w.config.Elapsed(), errorText(err)
	l := &w.link
	l.mu.Lock()
	last, before := l.warned[message]
	quiet, again := before && now-last.at < warnEvery, before && text == last.text && now-last.full < warnFull
	if !quiet {
		if l.warned == nil {
			l.warned = map[string]warning{}
		}
		next := warning{at: now, full: now, text: text}
		if again {
			next.full = last.full
		}
		l.warned[message] = next
	}
	l.mu.Unlock()
	switch {
	case quiet:
	case again && len(text) > warnShort:
		w.config.Logger.Warn(message, "error", storable.Clip(text, warnShort)+"… (as before)")
	default:
		w.config.Logger.Warn(message, "error", err)
	}
}

// callTimeout bounds one call of the store, so that a half-open connection
// does not hold the worker for the kernel's patience.
func (w *Worker) callTimeout() time.Duration {
	return min(max(w.config.Terms.Duration/2, 2*time.Second), 15*time.Second)
}

// contactRenewer is the store's Renewer, watched.
type contactRenewer struct{ w *Worker }

// Renew passes the call on.
func (r contactRenewer) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	sent := r.w.config.Elapsed()
	renewed, err := r.w.store.Renew(ctx, claims, d)
	r.w.contactWrite(sent, len(renewed), err)
	if err == nil {
		r.w.settler.wrote.Store(int64(r.w.config.Elapsed()))
	}
	if len(renewed) > 0 {
		r.w.tellCancels()
	}
	return renewed, err
}
