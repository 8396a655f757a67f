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
	"github.com/durable-worker/durable-worker/store"
)

// storeHealth is what the worker knows of its connection to the store.
//
// Reads and writes are tracked separately. A full disk, or a server that has become
// read-only, still answers every read, but owners cannot renew. So only writes decide when
// others may take their leases over (protocol.Takeover).
type storeHealth struct {
	mu         sync.Mutex
	answeredAt time.Duration // monotonic time when the store last answered
	silent     bool          // the last call failed
	outages    int           // times that a call failed after one that was answered
	outSince   time.Duration // monotonic time of the first call that failed, while silent
	outFor     time.Duration // of the outages that have ended, together
	refused    bool          // the last write failed
	takeover   protocol.Takeover
	warned     map[string]warning // by message
	misfit     string             // why the store's schema cannot be served; empty: it can
	server     int64              // that has answered, see store.ReclaimResult; zero: not known
	// declareAgain is how long after the last declaration the next one is that was refused
	// in part; zero: it was not.
	declareAgain atomic.Int64
}

func (h *storeHealth) init(terms lease.Terms) {
	h.mu.Lock() // a health check may read already
	defer h.mu.Unlock()
	h.takeover = protocol.Takeover{
		Hold: min(terms.Duration, 10*time.Second), OutageHold: min(terms.Duration/3, 10*time.Second),
		Gap: terms.Duration / 2, Slack: 2 * time.Second,
	}
}

// observeCall records how a call of the store ended.
func (w *Worker) observeCall(err error) {
	now := w.config.Elapsed()
	h := &w.health
	h.mu.Lock()
	defer h.mu.Unlock()
	w.observeAnswer(now, err)
}

// observeAnswer is observeCall; w.health.mu is held.
func (w *Worker) observeAnswer(now time.Duration, err error) {
	h := &w.health
	if errors.Is(err, store.ErrSchema) {
		h.misfit = errorText(err)
	}
	if err != nil {
		h.failed(now, !errors.Is(err, context.Canceled))
		return
	}
	if h.silent {
		h.outFor += now - h.outSince
		poke(w.back)
		w.settler.verify()
	}
	h.answeredAt, h.silent = now, false
}

// answeredBy records which server has answered, and reports whether another one had before.
func (w *Worker) answeredBy(server int64) (replaced bool) {
	h := &w.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if replaced = h.server != 0 && h.server != server; replaced {
		h.takeover.Replaced()
	}
	h.server = server
	return replaced
}

// failed records that a call has failed, and whether the store is to be blamed.
func (h *storeHealth) failed(now time.Duration, silent bool) {
	switch {
	case silent && !h.silent:
		h.outages, h.outSince = h.outages+1, now
	case !silent && h.silent:
		h.outFor += now - h.outSince
	}
	h.silent = silent
}

// observeFit records that a call has succeeded which a store refuses whose schema it
// cannot serve.
func (w *Worker) observeFit(err error) {
	h := &w.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && h.misfit != "" {
		h.misfit = ""
		w.config.Logger.Info("the schema can be served again", "event", "worker.back")
	}
}

// observeWrite records how a write ended that was sent at an instant, and how
// many rows it has certainly written: a call that found nothing to change says
// nothing about writes.
func (w *Worker) observeWrite(sent time.Duration, written int, err error) {
	now := w.config.Elapsed()
	h := &w.health
	h.mu.Lock()
	defer h.mu.Unlock()
	w.observeAnswer(now, err)
	switch {
	case err != nil:
		h.refused = h.refused || !errors.Is(err, context.Canceled)
	case written > 0:
		h.refused = false
		h.takeover.Wrote(sent, now)
		w.settler.accepted(now)
	}
}

// unreachable reports whether the store has been silent for so long that the leases
// of living workers may have run out.
func (w *Worker) unreachable() bool {
	w.health.mu.Lock()
	defer w.health.mu.Unlock()
	return w.health.silent && w.config.Elapsed()-w.health.answeredAt > w.config.Terms.Duration/3
}

// warning is what was last logged of one message.
type warning struct {
	loggedAt time.Duration // monotonic time
	fullAt   time.Duration // likewise: when the error was last logged in full
	text     string
}

const (
	// warnEvery is the least time between two lines of one message.
	warnEvery = time.Second
	// warnFull is how often an error that stays the same is logged in full, and
	// warnShort the bytes of it that are logged between.
	warnFull  = time.Minute
	warnShort = 80
)

// warn logs an event, a failure that is tried again, each message at most once a second. An
// error that stays the same is long once a minute and short in between.
func (w *Worker) warn(ctx context.Context, event, message string, err error) {
	if errors.Is(ctx.Err(), context.Canceled) { // whatever its cause: the worker is stopping
		return
	}
	now, text := w.config.Elapsed(), errorText(err)
	h := &w.health
	h.mu.Lock()
	last, before := h.warned[message]
	quiet, again := before && now-last.loggedAt < warnEvery, before && text == last.text && now-last.fullAt < warnFull
	if !quiet {
		if h.warned == nil {
			h.warned = map[string]warning{}
		}
		next := warning{loggedAt: now, fullAt: now, text: text}
		if again {
			next.fullAt = last.fullAt
		}
		h.warned[message] = next
	}
	h.mu.Unlock()
	switch {
	case quiet:
	case again && len(text) > warnShort:
		w.config.Logger.Warn(message, "event", event, "error", storable.Clip(text, warnShort)+"… (as before)")
	default:
		w.config.Logger.Warn(message, "event", event, "error", err)
	}
}

// callTimeout bounds one call of the store, so that a half-open connection
// does not hold the worker until the kernel's TCP timeout.
func (w *Worker) callTimeout() time.Duration {
	return min(max(w.config.Terms.Duration/2, 2*time.Second), 15*time.Second)
}

// observedRenewer is the store's Renewer, watched.
type observedRenewer struct{ w *Worker }

// Renew passes the call on.
func (r observedRenewer) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	sent := r.w.config.Elapsed()
	renewed, err := r.w.store.Renew(ctx, claims, d)
	r.w.observeWrite(sent, len(renewed), err)
	if err == nil {
		r.w.settler.wrote.Store(int64(r.w.config.Elapsed()))
	}
	if len(renewed) > 0 {
		poke(r.w.cancelRequests)
	}
	return renewed, err
}
