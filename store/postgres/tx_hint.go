package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// trailing is how long after an enqueue in a caller's transaction that carries
// no notification workers are notified that there may be something: the store does
// not see when the caller commits.
var trailing = [...]time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second} //nolint:gochecknoglobals // never changes

// txHints bounds the notifications in callers' transactions: commits that
// notify are serialised by the server.
type txHints struct {
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
func (h *txHints) end() (dues []store.Due, overrun bool) {
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
func (h *txHints) may() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := lease.Elapsed()
	if h.last != 0 && now-h.last < hintPause {
		return false
	}
	h.last = now
	return true
}

// hint has workers notified when the transaction is committed.
func (t *Tx) hint(ctx context.Context, dues []store.Due) error {
	s := t.store
	if s.config.NoNotify || len(dues) > duesPerCall || !s.txHints.may() {
		s.trail(dues)
		return nil
	}
	dues = drawn(dues, newDraw())
	b := &batch{names: s.names}
	b.add(queries.NotifyAtCommit, s.names.channel(), duePayload(s.hints.atCommit(), dues))
	return s.send(ctx, t.binding, b)
}

// atCommit is what a notification in a caller's transaction says. It is not
// ours to pass over: our own listeners learn of the commit by it too.
func (h *hints) atCommit() string { return "commit" }

// trail arms the trailing hints. One that is armed already, perhaps for a
// transaction that commits earlier, is armed again after it.
func (s *Store) trail(dues []store.Due) {
	s.txHints.mu.Lock()
	defer s.txHints.mu.Unlock()
	if s.txHints.ended {
		return
	}
	for i := range s.txHints.rungs {
		r := &s.txHints.rungs[i]
		if r.put(dues); r.timer == nil {
			s.arm(i)
		}
	}
}

// arm needs the mutex.
func (s *Store) arm(i int) {
	s.txHints.rungs[i].timer = time.AfterFunc(trailing[i], func() { s.fire(i) })
}

// fire has a trailing hint sent, and arms it again if it has more to announce.
func (s *Store) fire(i int) {
	s.txHints.mu.Lock()
	defer s.txHints.mu.Unlock()
	if s.txHints.ended {
		return
	}
	r := &s.txHints.rungs[i]
	s.hintTrailed(r.turn())
	if r.timer = nil; r.boxes[r.now].any() {
		s.arm(i)
	}
}

// hintTrailed announces what was trailed.
func (s *Store) hintTrailed(dues []store.Due, overrun bool) {
	if overrun {
		s.hint()
	}
	s.hintDue(dues)
}
