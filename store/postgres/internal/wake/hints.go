package wake

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/internal/board"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const (
	// ridePatience is how long an enqueue that carries a notification may take, since the
	// server commits one notifying transaction at a time. After a slower one, enqueues carry
	// none for rideRest, and notifications are sent on their own.
	ridePatience = 10 * time.Millisecond
	rideRest     = time.Second
)

// hints collects the signals of a process, which sends them in few notifications: the server
// commits one notifying transaction at a time.
type hints struct {
	self  string     // identifies this process as the sender of a notification
	out   *board.Box // to be sent
	due   dueBox     // wake-ups to be sent
	freed dueBox     // wake-ups for freed places, for workers of other processes
	given chan struct{}
	here  board.Board
	pace  pace
	slow  conn.Lately // when an enqueue that carried a notification took too long
}

// init prepares to collect.
func (h *hints) init() { h.self, h.out, h.given = rand.Text(), board.NewBox(), make(chan struct{}, 1) }

// Hint wakes all workers, of every process, because runs may be due. It never waits.
func (w *Waker) Hint() { w.hints.out.Put(store.Signal{Kind: store.RunsDue}) }

// HintFreed wakes workers for places that were freed, for which turns on these lines wait.
// The workers of this process are woken immediately, since the places stay unused until
// then. Those of other processes are notified of the lines on which runs are blocked.
func (w *Waker) HintFreed(lines, blocked []store.LineID) {
	if len(lines) == 0 {
		return
	}
	w.GiveDue(DuesOn(lines))
	if len(blocked) > 0 && w.hints.freed.add(DuesOn(blocked)...) {
		w.hints.poke()
	}
}

// HintAgain wakes workers for runs that were put back. Runs that are due later are left to
// the workers of this process, which claim them when they are due or pass the wake-up on. If
// the process dies first, other workers find these runs by the heads of their lanes.
func (w *Waker) HintAgain(dues []store.Due) {
	if len(dues) == 0 {
		return
	}
	if !w.crews.any() || slices.ContainsFunc(dues, func(due store.Due) bool { return due.Lane <= 0 || due.In <= 0 }) {
		w.Hint()
		return
	}
	for i := range dues {
		dues[i].Names = w.process.NamesOf(dues[i].Lane)
	}
	w.GiveDue(dues)
}

// DuesOn returns wake-ups for lines of turns.
func DuesOn(lines []store.LineID) []store.Due {
	lines = slices.Compact(slices.Sorted(slices.Values(lines)))
	dues := make([]store.Due, len(lines))
	for i, line := range lines {
		dues[i] = store.Due{Lane: line}
	}
	return dues
}

// forOthers addresses freed places to one worker more of each crew than this process has. So
// at least one of them is elsewhere: the workers of this process have been woken already.
func (w *Waker) forOthers(freed []store.Due) []store.Due {
	here := w.process.Workers()
	for i := range freed {
		freed[i].Runs = max(here, 1)*store.RunsPerWorker + 1
	}
	return freed
}

// DuesForOthers returns wake-ups for freed places, addressed as forOthers does.
func (w *Waker) DuesForOthers(freed []store.LineID) []store.Due { return w.forOthers(DuesOn(freed)) }

// Enqueued records an enqueue of this process.
func (w *Waker) Enqueued() { w.hints.pace.enqueued(lease.Running()) }

// CountClaimed records how many runs the workers of this process have claimed.
func (w *Waker) CountClaimed(n int) { w.claimed.Add(int64(n)) }

// HintDue wakes the workers that serve the lanes of these wake-ups.
func (w *Waker) HintDue(all []store.Due) {
	if w.hints.due.add(all...) {
		w.hints.poke()
	}
}

// poke wakes sendHints.
func (h *hints) poke() {
	select {
	case h.given <- struct{}{}:
	default:
	}
}

// Publish sends a signal to all listeners, together with the others of the same few
// milliseconds.
func (w *Waker) Publish(ctx context.Context, signal store.Signal) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if signal.Kind == store.RunsDue && signal.Due.Lane != 0 {
		if signal.Due.In == 0 && signal.Due.Draw == 0 { // a watcher may have no room for it: draw another worker
			signal.Due.Draw = newDraw()
		}
		w.HintDue([]store.Due{signal.Due})
	} else {
		w.hints.out.Put(signal)
	}
	return nil
}

// sendHints sends signals until ctx ends, including the last ones.
func (w *Waker) sendHints(ctx context.Context) {
	for ended := false; !ended; {
		w.hints.wait(ctx)
		ended = ctx.Err() != nil // checked before the boxes are emptied, so that nothing stays in them
		waiting, dues, freed := w.hints.take(ended)
		if len(waiting)+len(dues)+len(freed) == 0 {
			continue
		}
		asked := slices.Clone(dues)
		dues = w.hints.pace.notified(lease.Running(), dues)
		for i := range asked {
			asked[i].Runs = dues[i].Runs // without those that a watch has found
		}
		w.hints.here.Give(waiting...)
		w.GiveDue(dues)
		if w.noNotify {
			continue
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second) // Close waits for it
		var err error
		if tried := w.locksToTry(asked); len(tried) == 0 || ended {
			freed = append(dues, w.forOthers(freed)...)
		} else {
			err = w.notifyUnwatched(bounded, asked, dues, tried)
			freed = w.forOthers(freed)
		}
		if texts := append(payloads(w.hints.self, waiting), duePayloads(w.hints.self, freed)...); len(texts) > 0 {
			err = errors.Join(err, w.db.Queries(w.notifier()).Notify(bounded, queries.NotifyParams{Channel: w.db.Names.Channel(), Payloads: texts}))
		}
		if err != nil && bounded.Err() == nil {
			w.db.Log.Debug("notifying others failed, they find out by polling", "event", "wakeup.not_sent", "error", err)
		}
		cancel()
	}
}

// notifyUnwatched sends dues unless some worker has announced that it watches their lanes. In
// that case asked, which is dues before the draw, is sent after the watch.
func (w *Waker) notifyUnwatched(ctx context.Context, asked, dues []store.Due, tried []int64) error {
	var rest time.Duration
	b := w.db.NewBatch()
	b.Add(queries.Unflushed)
	w.addNotify(b, duePayload(w.hints.self, dues), tried, &rest)
	if err := w.db.Send(ctx, w.notifier(), b); err != nil {
		return err
	}
	if rest > 0 {
		w.hints.pace.watchedByAnother(lease.Running(), rest, asked)
		for i := range asked { // the watch finds most of them
			asked[i].Runs = 1
		}
		w.hints.due.add(asked...)
	}
	return nil
}

// take empties the boxes for one notification. Wake-ups that a watch covers stay until it
// ends, whatever else is sent before, unless these are the last.
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
	others := false // there are signals other than wake-ups that name their lanes
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

// GiveDue wakes workers of this process.
func (w *Waker) GiveDue(dues []store.Due) {
	signals := make([]store.Signal, len(dues))
	for i, due := range dues {
		signals[i] = store.Signal{Kind: store.RunsDue, Due: due}
	}
	w.hints.here.Give(signals...)
}

// Ride is a notification that an enqueue carries in its transaction, at the cost of neither
// a round trip nor a commit.
type Ride struct {
	dues  []store.Due
	asked []store.Due   // dues before the draw
	tried []int64       // see locksToTry
	rest  time.Duration // how long some worker still watches; zero: the notification was sent
	sent  time.Duration // monotonic clock
}

// Ride returns the notification that an enqueue carries; nil: none, because the process has
// sent one too recently, or notifications make enqueues wait.
func (w *Waker) Ride(dues []store.Due) *Ride {
	now := lease.Running()
	mixed := slices.ContainsFunc(dues, func(due store.Due) bool { return due.In > 0 != (dues[0].In > 0) }) // one payload is for either
	if len(dues) == 0 || mixed || len(dues) > duesPerCall || w.noNotify || w.hints.slow.Within(rideRest) || !w.hints.pace.may(now, dues) {
		return nil
	}
	r := &Ride{asked: slices.Clone(dues), tried: w.locksToTry(dues), sent: now}
	r.dues = w.hints.pace.notified(now, dues)
	return r
}

// AddRide adds the notification of an enqueue, if there is one, to its statements.
func (w *Waker) AddRide(b *conn.Batch, r *Ride) {
	if r != nil {
		w.addNotify(b, duePayload(w.hints.self, r.dues), r.tried, &r.rest)
	}
}

// addNotify adds a notification. If there are locks to try and some worker holds one, nothing
// is sent and rest becomes the time for which that worker still watches.
func (w *Waker) addNotify(b *conn.Batch, payload string, tried []int64, rest *time.Duration) {
	if *rest = 0; len(tried) == 0 {
		b.Add(queries.NotifyAtCommit, w.db.Names.Channel(), payload)
		return
	}
	b.Add(queries.NotifyUnwatched, w.db.Names.Channel(), payload, tried).Query(func(rows pgx.Rows) error {
		var micros int64
		for rows.Next() {
			if err := rows.Scan(&micros); err != nil {
				return err
			}
		}
		*rest = time.Duration(micros) * time.Microsecond
		return rows.Err()
	})
}

// Arrived wakes the workers of this process after the commit. If a watch held the notification
// back, it returns the wake-ups to send when that watch ends.
func (w *Waker) Arrived(r *Ride) []store.Due {
	now := lease.Running()
	if r.rest > 0 {
		w.hints.pace.watchedByAnother(now, r.rest, r.asked)
		return r.asked
	}
	w.GiveDue(r.dues)
	if now-r.sent > ridePatience {
		w.hints.slow.Mark()
	}
	return nil
}

// notifier returns the pool for notifications: the one that the process uses anyway, unless
// callers have all of its connections.
func (w *Waker) notifier() *pgxpool.Pool {
	if w.process.Workers() > 0 {
		return w.db.Engine
	}
	if stat := w.db.General.Stat(); stat.AcquiredConns() >= stat.MaxConns() {
		return w.db.Aloof()
	}
	return w.db.General
}

// Waker sends and receives the wake-ups of a process.
type Waker struct {
	db       *conn.DB
	process  Process
	noNotify bool // other processes find out by polling

	hints    hints         // to be sent; sendHints empties them
	trailing trailingHints // hints after enqueues in callers' transactions
	crews    crews         // of the listeners of this process
	claimed  atomic.Int64  // runs, by the workers of this process
}

// Process is what a Waker has to know of its process.
type Process interface {
	// Workers returns how many of its workers have registered.
	Workers() int
	// NamesOf returns the hash of a lane's names, as the function NamesOf does; zero: not known.
	NamesOf(lane store.LaneID) uint64
}

// New returns the waker of a process. Run has to run as long as it is used.
func New(db *conn.DB, process Process, noNotify bool) *Waker {
	w := &Waker{db: db, process: process, noNotify: noNotify}
	w.hints.init()
	return w
}

// Run sends signals until ctx ends, including the last ones.
func (w *Waker) Run(ctx context.Context) { w.sendHints(ctx) }
