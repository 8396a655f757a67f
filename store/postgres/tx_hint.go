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
	dues  dueBox // what the trailing hints are about
	ended bool   // the store is closed: no more are armed
}

// rung is one of the trailing hints.
type rung struct {
	timer *time.Timer // nil: not armed
	again bool
}

// end stops the trailing hints and reports whether one was armed.
func (h *txHints) end() (armed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for i := range h.rungs {
		if timer := h.rungs[i].timer; timer != nil {
			armed = timer.Stop() || armed
		}
	}
	return armed
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
	draw := newDraw()
	for i := range dues {
		dues[i].Draw = draw
	}
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
	s.txHints.dues.add(dues...)
	for i := range s.txHints.rungs {
		if r := &s.txHints.rungs[i]; r.timer != nil {
			r.again = true
		} else {
			s.arm(i)
		}
	}
}

// arm needs the mutex.
func (s *Store) arm(i int) {
	if s.txHints.ended {
		return
	}
	s.txHints.rungs[i] = rung{timer: time.AfterFunc(trailing[i], func() {
		s.txHints.mu.Lock()
		defer s.txHints.mu.Unlock()
		s.hintTrailed()
		if s.txHints.rungs[i].timer = nil; s.txHints.rungs[i].again {
			s.arm(i)
		} else if i == len(trailing)-1 {
			s.txHints.dues.take()
		}
	})}
}

// hintTrailed sends what the trailing hints are about; the mutex is held.
func (s *Store) hintTrailed() {
	dues, overrun := s.txHints.dues.all()
	if overrun {
		s.hint()
	}
	s.hintDue(dues)
}
