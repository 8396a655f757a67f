package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
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
