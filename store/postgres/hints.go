package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/internal/board"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const (
	// ridePatience is how long an enqueue may take that carries a notification:
	// commits that notify wait for each other. After one that took longer they go
	// by themselves for a while.
	ridePatience = 10 * time.Millisecond
	rideRest     = time.Second
)

// hints gathers signals: commits that notify are serialised by the server, so
// a process sends few.
type hints struct {
	self  string     // reports our own notifications from others'
	out   *board.Box // to be sent
	due   dueBox     // likewise
	freed dueBox     // freed places, of which others have not been notified
	given chan struct{}
	here  board.Board
	pace  pace
	slow  lately // when a notification took long that rode on an enqueue
}

func (h *hints) init() { h.self, h.out, h.given = rand.Text(), board.NewBox(), make(chan struct{}, 1) }

// hint reports workers, here and elsewhere, that runs may be due. It never waits.
func (s *Store) hint() { s.hints.out.Put(store.Signal{Kind: store.RunsDue}) }

// hintFreed is hint after places were freed for which turns on these lines wait. The
// workers here hear of it immediately, or the places would be left unused for as long as a
// notification waits; those elsewhere hear of the lines on which runs are blocked.
func (s *Store) hintFreed(lines, blocked []store.LineID) {
	if len(lines) == 0 {
		return
	}
	s.giveDue(duesOn(lines))
	if len(blocked) > 0 && s.hints.freed.add(duesOn(blocked)...) {
		s.hints.poke()
	}
}

// hintAgain wakes workers for runs that were put back. Those that are due later are for the
// workers here, who take them when they are due or pass them on; where a process dies
// before, others find them by their heads.
func (s *Store) hintAgain(dues []store.Due) {
	if len(dues) == 0 {
		return
	}
	if !s.crews.any() || slices.ContainsFunc(dues, func(due store.Due) bool { return due.Lane <= 0 || due.In <= 0 }) {
		s.hint()
		return
	}
	for i := range dues {
		dues[i].Names = s.lanes.name(dues[i].Lane)
	}
	s.giveDue(dues)
}

// duesOn are wake-ups for lines of turns.
func duesOn(lines []store.LineID) []store.Due {
	lines = slices.Compact(slices.Sorted(slices.Values(lines)))
	dues := make([]store.Due, len(lines))
	for i, line := range lines {
		dues[i] = store.Due{Lane: line}
	}
	return dues
}

// forOthers has one worker of each crew more look for what was freed than there are in this
// process, as those know already, whichever of the crew they are.
func (s *Store) forOthers(freed []store.Due) []store.Due {
	s.workers.mu.Lock()
	here := len(s.workers.ids)
	s.workers.mu.Unlock()
	for i := range freed {
		freed[i].Runs = max(here, 1)*store.RunsPerWorker + 1
	}
	return freed
}

// hintDue is hint that says where.
func (s *Store) hintDue(all []store.Due) {
	if s.hints.due.add(all...) {
		s.hints.poke()
	}
}

// poke has what is announced sent.
func (h *hints) poke() {
	select {
	case h.given <- struct{}{}:
	default:
	}
}

// Publish passes a signal on to all that listen, together with what else is
// announced within a few milliseconds.
func (s *Store) Publish(ctx context.Context, signal store.Signal) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if signal.Kind == store.RunsDue && signal.Due.Lane != 0 {
		s.hintDue([]store.Due{signal.Due})
	} else {
		s.hints.out.Put(signal)
	}
	return nil
}

// sendHints passes signals on until ctx ends, the last ones included.
func (s *Store) sendHints(ctx context.Context) {
	for ended := false; !ended; {
		s.hints.wait(ctx)
		ended = ctx.Err() != nil // asked before the boxes are emptied: nothing is left in them
		waiting, dues, freed := s.hints.take(ended)
		if len(waiting)+len(dues)+len(freed) == 0 {
			continue
		}
		dues = s.hints.pace.notified(lease.Running(), dues)
		s.hints.here.Give(waiting...)
		s.giveDue(dues)
		if s.config.NoNotify {
			continue
		}
		texts := append(payloads(s.hints.self, waiting), duePayloads(s.hints.self, append(dues, s.forOthers(freed)...))...)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second) // Close waits for it
		err := s.queries(s.notifier()).Notify(bounded, queries.NotifyParams{Channel: s.names.channel(), Payloads: texts})
		if err != nil && bounded.Err() == nil {
			s.config.Logger.Debug("notifying others failed, they find out by polling", "event", "wakeup.not_sent", "error", err)
		}
		cancel()
	}
}

// take empties the boxes, for one notification. Wake-ups that a watch covers stay until it
// is over, whatever else is sent before, unless these are the last.
func (h *hints) take(last bool) (waiting []store.Signal, dues, freed []store.Due) {
	waiting = h.out.Take()
	covered := func(store.Due) bool { return false }
	if all, overrun := h.due.all(); !last && !overrun {
		covered = h.pace.covered(lease.Running(), all)
	}
	dues, overrun := h.due.take(covered)
	freed, many := h.freed.take(nil)
	if overrun || many {
		waiting = append(waiting, store.Signal{Kind: store.RunsDue})
	}
	return waiting, dues, drawn(freed, newDraw())
}

// wait waits until it is time for the next notification, or until ctx ends.
func (h *hints) wait(ctx context.Context) {
	others := false // there is more to send than wake-ups that name their lanes
	for rest := h.rest(others); rest > 0; {
		timer := time.NewTimer(rest)
		select {
		case <-h.out.Given():
			others = true
		case <-h.given:
		case <-timer.C:
		case <-ctx.Done():
			rest = 0
		}
		if timer.Stop(); ctx.Err() == nil {
			rest = h.rest(others)
		}
	}
}

// rest is how long to wait before the next notification.
func (h *hints) rest(others bool) time.Duration {
	dues, overrun := h.due.all()
	if others || overrun || h.freed.any() {
		dues = nil
	} else if len(dues) == 0 {
		return time.Hour
	}
	return h.pace.rest(lease.Running(), dues)
}

// giveDue wakes workers of this process.
func (s *Store) giveDue(dues []store.Due) {
	signals := make([]store.Signal, len(dues))
	for i, due := range dues {
		signals[i] = store.Signal{Kind: store.RunsDue, Due: due}
	}
	s.hints.here.Give(signals...)
}

// ride is a notification that goes with an enqueue, in its transaction: neither a
// round trip nor a commit of its own.
type ride struct {
	dues []store.Due
	sent time.Duration // monotonic clock
}

// ride lets the wake-ups of an enqueue go with it, if the process may notify now and
// that does not make enqueues wait; else it returns nil.
func (s *Store) ride(dues []store.Due) *ride {
	now := lease.Running()
	s.hints.pace.enqueued(now)
	mixed := slices.ContainsFunc(dues, func(due store.Due) bool { return due.In > 0 != (dues[0].In > 0) }) // one payload is for either
	if len(dues) == 0 || mixed || len(dues) > duesPerCall || s.config.NoNotify || s.hints.slow.within(rideRest) || !s.hints.pace.may(now, dues) {
		return nil
	}
	return &ride{dues: s.hints.pace.notified(now, dues), sent: now}
}

// add adds the notification to the statements of an enqueue.
func (r *ride) add(s *Store, b *batch) {
	if r != nil {
		b.add(queries.NotifyAtCommit, s.names.channel(), duePayload(s.hints.self, r.dues))
	}
}

// arrived reports this process's own workers.
func (r *ride) arrived(s *Store) {
	s.giveDue(r.dues)
	if lease.Running()-r.sent > ridePatience {
		s.hints.slow.mark()
	}
}

// notifier is the pool that notifies: the one that the process uses anyway.
func (s *Store) notifier() *pgxpool.Pool {
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	if len(s.workers.ids) > 0 {
		return s.engine
	}
	return s.general
}

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
