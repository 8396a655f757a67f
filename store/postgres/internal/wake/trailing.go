package wake

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// trailing is how long after an enqueue in a caller's transaction that carries
// no notification workers are notified that there may be something: the store does
// not see when the caller commits.
var trailing = [...]time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second} //nolint:gochecknoglobals // never changes

// trailingHints bounds the notifications in callers' transactions: commits that
// notify are serialised by the server.
type trailingHints struct {
	mu    sync.Mutex
	last  time.Duration // monotonic clock, of the last notification; zero: none
	rungs [len(trailing)]rung
	ended bool // the store is closed: no more are armed
}

// rung is one of the trailing hints. It announces what was trailed while it was armed
// twice: early, with what it was armed for, and after its whole delay.
type rung struct {
	timer *time.Timer // nil: not armed, and both boxes are empty
	boxes [2]dueBox
	now   int // the box of what it was armed for; the other one's has come since
}

// put adds what is trailed.
func (r *rung) put(dues []store.Due) {
	if r.timer == nil {
		r.boxes[r.now].add(dues...)
	} else {
		r.boxes[1-r.now].add(dues...)
	}
}

// turn returns what the rung announces, and keeps of it what it was not armed for.
func (r *rung) turn() (dues []store.Due, overrun bool) {
	dues, overrun = r.boxes[r.now].take(nil)
	r.now = 1 - r.now
	since, many := r.boxes[r.now].all()
	return append(dues, since...), overrun || many
}

// end stops the trailing hints and returns what they were still to announce: the last has
// all of it.
func (h *trailingHints) end() (dues []store.Due, overrun bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for i := range h.rungs {
		if timer := h.rungs[i].timer; timer != nil {
			timer.Stop()
		}
	}
	return h.rungs[len(trailing)-1].turn()
}

// may reports whether a transaction may carry a notification now.
func (h *trailingHints) may() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := lease.Elapsed()
	if h.last != 0 && now-h.last < hintPause {
		return false
	}
	h.last = now
	return true
}

// HintAtCommit has workers notified when a caller's transaction is committed.
func (w *Waker) HintAtCommit(ctx context.Context, to conn.Sender, dues []store.Due) error {
	if w.noNotify || len(dues) > duesPerCall || w.hints.pace.allWatched(lease.Running(), dues) || !w.trailing.may() {
		w.trail(dues)
		return nil
	}
	asked, tried, rest := slices.Clone(dues), w.locksToTry(dues), time.Duration(0)
	b := w.db.NewBatch()
	w.addNotify(b, duePayload(w.hints.atCommit(), drawn(dues, newDraw())), tried, &rest)
	err := w.db.Send(ctx, to, b)
	if err == nil && rest > 0 {
		w.hints.pace.watchedByAnother(lease.Running(), rest, asked)
		w.trail(asked)
	}
	return err
}

// NoticeAtCommit has workers release a run when the caller's transaction is committed.
func (w *Waker) NoticeAtCommit(ctx context.Context, to conn.Sender, run store.RunID) error {
	if w.noNotify {
		return nil
	}
	b := w.db.NewBatch()
	b.Add(queries.NotifyAtCommit, w.db.Names.Channel(), payloads(w.hints.atCommit(), []store.Signal{{Kind: store.NoticesLeft, Run: run}})[0])
	return w.db.Send(ctx, to, b)
}

// atCommit is what a notification in a caller's transaction says. It is not
// ours to pass over: our own listeners learn of the commit by it too.
func (h *hints) atCommit() string { return "commit" }

// trail arms the trailing hints. One that is armed already, perhaps for a
// transaction that commits earlier, is armed again after it.
func (w *Waker) trail(dues []store.Due) {
	w.trailing.mu.Lock()
	defer w.trailing.mu.Unlock()
	if w.trailing.ended {
		return
	}
	for i := range w.trailing.rungs {
		r := &w.trailing.rungs[i]
		if r.put(dues); r.timer == nil {
			w.arm(i)
		}
	}
}

// arm needs the mutex.
func (w *Waker) arm(i int) {
	w.trailing.rungs[i].timer = time.AfterFunc(trailing[i], func() { w.fire(i) })
}

// fire has a trailing hint sent, and arms it again if it has more to announce.
func (w *Waker) fire(i int) {
	w.trailing.mu.Lock()
	defer w.trailing.mu.Unlock()
	if w.trailing.ended {
		return
	}
	r := &w.trailing.rungs[i]
	w.hintTrailed(r.turn())
	if r.timer = nil; r.boxes[r.now].any() {
		w.arm(i)
	}
}

// hintTrailed announces what was trailed.
func (w *Waker) hintTrailed(dues []store.Due, overrun bool) {
	if overrun {
		w.Hint()
	}
	w.HintDue(dues)
}

// EndTrailing announces what is trailed, sooner than it was to be.
func (w *Waker) EndTrailing() { w.hintTrailed(w.trailing.end()) }
