package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
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
	self  string     // tells our own notifications from others'
	out   *board.Box // to be sent
	due   dueBox     // likewise
	given chan struct{}
	here  board.Board
	pace  pace
	slow  lately // when a notification took long that rode on an enqueue
}

func (h *hints) init() { h.self, h.out, h.given = rand.Text(), board.NewBox(), make(chan struct{}, 1) }

// hint tells workers, here and elsewhere, that runs may be due. It never waits.
func (s *Store) hint() { s.hints.out.Put(store.Signal{Kind: store.RunsDue}) }

// hintDue is hint that says where.
func (s *Store) hintDue(all []store.Due) {
	if len(all) == 0 {
		return
	}
	s.hints.due.add(all...)
	select {
	case s.hints.given <- struct{}{}:
	default:
	}
}

// Publish passes a signal on to all that listen, together with what else is
// announced within a few milliseconds.
func (s *Store) Publish(ctx context.Context, signal store.Signal) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("announce: %w", err)
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
	for ctx.Err() == nil {
		others := false // there is more to send than wake-ups that name their lanes
		for rest := time.Hour; rest > 0; {
			timer := time.NewTimer(rest)
			select {
			case <-s.hints.out.Given():
				others = true
			case <-s.hints.given:
			case <-timer.C:
			case <-ctx.Done():
				rest = 0
			}
			if timer.Stop(); ctx.Err() == nil {
				rest = s.hints.rest(others)
			}
		}
		s.sendHint(context.WithoutCancel(ctx)) // Close waits for it
	}
}

// rest is how long to wait before the next notification.
func (h *hints) rest(others bool) time.Duration {
	dues, overrun := h.due.all()
	if others || overrun {
		dues = nil
	} else if len(dues) == 0 {
		return time.Hour
	}
	return h.pace.rest(lease.Elapsed(), dues)
}

func (s *Store) sendHint(ctx context.Context) {
	waiting := s.hints.out.Take()
	dues, overrun := s.hints.due.take()
	if overrun {
		waiting = append(waiting, store.Signal{Kind: store.RunsDue})
	}
	if len(waiting)+len(dues) == 0 {
		return
	}
	s.hints.pace.notified(lease.Elapsed(), dues)
	s.hints.here.Give(waiting...)
	s.giveDue(dues)
	if s.config.NoNotify {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	texts := append(payloads(s.hints.self, waiting), duePayloads(s.hints.self, dues)...)
	err := s.queries(s.notifier()).Notify(ctx, queries.NotifyParams{Channel: s.names.channel(), Payloads: texts})
	if err != nil && ctx.Err() == nil {
		s.config.Logger.Debug("notifying others failed, they find out by polling", "error", err)
	}
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
	sent time.Duration // own clock
}

// ride lets the wake-ups of an enqueue go with it, if the process may notify now and
// that does not make enqueues wait; else it returns nil.
func (s *Store) ride(dues []store.Due) *ride {
	now := lease.Elapsed()
	s.hints.pace.enqueued(now)
	if len(dues) == 0 || len(dues) > duesPerCall || s.config.NoNotify || s.hints.slow.within(rideRest) || !s.hints.pace.may(now, dues) {
		return nil
	}
	s.hints.pace.notified(now, dues)
	r := &ride{dues: dues, sent: now}
	draw := newDraw()
	for i := range r.dues {
		r.dues[i].Draw = draw
	}
	return r
}

// add adds the notification to the statements of an enqueue.
func (r *ride) add(s *Store, b *batch) {
	if r != nil {
		b.add(queries.NotifyAtCommit, s.names.channel(), duePayload(s.hints.self, r.dues))
	}
}

// arrived tells this process's own workers.
func (r *ride) arrived(s *Store) {
	s.giveDue(r.dues)
	if lease.Elapsed()-r.sent > ridePatience {
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
