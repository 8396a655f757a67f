package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// asideOutcomes holds the outcomes that the store does not take, each tried alone: there
// is a damaged page, a trigger of the user's, a missing privilege. They stop no
// other outcome. Each is tried again after a pause of its own that doubles from
// asideFirst to asideLongest, until it is stored. Its claim keeps its lease.
//
// An outcome that is set aside while the store takes nothing at all is not to
// blame: it is tried again as soon as a write succeeds, of whatever kind, and before this
// worker reclaims. One that fails after that, or has failed while other writes succeeded,
// is blamed: it is logged as an error, listed by Worker.Status, and named by Run's error
// when a drain leaves it.
//
// Memory: while heldMost outcomes, or heldBytes of them, are set aside or
// deferred, the worker claims nothing. What is in hand by then still comes in, so
// the bound is that and the outcomes of MaxConcurrentRuns handlers.
type asideOutcomes struct {
	bytes    int           // of the items and the deferred outcomes; the run method's own
	failures int           // retries in a row that failed; likewise
	rest     time.Duration // elapsed time before which no outcome is retried that is to blame; likewise

	accepted atomic.Int64 // elapsed time when a write of the worker, of whatever kind, last succeeded

	mu    sync.Mutex
	items []*asideItem // the run method alone changes them, and reads them without the mutex
	clear int          // of the items, those that are not to blame
	locks int          // deferred outcomes
	full  bool
}

// asideItem is one outcome set aside.
type asideItem struct {
	ended

	blamed   bool
	since    time.Duration // elapsed time when it was first tried alone
	failedAt time.Duration // when it last failed
	due      time.Duration // when it is tried again
	pause    time.Duration // after the next failure
	lost     int           // failures after its lease was lost
	reason   string        // of the last failure
}

const (
	// The first pause of an outcome that was set aside, and the longest.
	asideFirst   = time.Second
	asideLongest = time.Minute
	// asideRest is the longest pause between retries of different outcomes, and
	// asideCalm how many times as long as a retry took the next one waits at
	// least: retries of outcomes that are to blame take at most a fifth of the
	// settler's time.
	asideRest = 100 * time.Millisecond
	asideCalm = 4
	// asideLost is how often an outcome is tried whose lease is lost: another
	// worker executes the run, and its outcome would be refused.
	asideLost = 5
	// asideNamed bounds the runs that are named together.
	asideNamed = 10
	// heldMost and heldBytes limit the outcomes set aside and deferred: at either
	// the worker stops claiming, and resumes when half of that is left.
	heldMost  = 4 * settleBatch
	heldBytes = waitingBytes / 2
)

// UnsettledError reports outcomes that the store had not accepted when the drain was over: it
// refused them although it accepted other writes, it was unreachable, or the program closed it
// before Run returned. Their runs are executed again when their leases have expired.
type UnsettledError struct {
	Runs   []RunID
	Reason string // why the store did not take the last of them
}

// Error names the first ten runs.
func (e *UnsettledError) Error() string {
	some := e.Runs[:min(len(e.Runs), asideNamed)]
	return fmt.Sprintf("the store did not accept the outcomes of %d runs, which will be executed again after their leases expire: %v: %s", len(e.Runs), some, e.Reason)
}

// Unsettled describes the outcomes that a worker cannot write.
type Unsettled struct {
	Count  int     // outcomes that the store does not take, though it takes other writes
	Runs   []RunID // the first ten of their runs
	Reason string  // why the last of them was not taken
	Locked int     // outcomes of runs that another transaction keeps locked
	Full   bool    // outcomes that cannot be written are so many that the worker claims nothing
}

// setAside keeps an outcome that the store has not taken, alone, since an instant.
func (s *settler) setAside(e ended, err error, since time.Duration) {
	now := s.w.config.Elapsed()
	item := &asideItem{ended: e, since: since, failedAt: now, pause: asideFirst, due: now + s.w.jittered(asideFirst), reason: reasonOf(err)}
	s.aside.bytes += e.size()
	s.aside.mu.Lock()
	s.aside.items = append(s.aside.items, item)
	s.aside.clear++
	s.aside.mu.Unlock()
	s.blame(item, s.wroteBefore)
	s.countHeld()
	s.w.aloneEnded(e.x.claim)
}

// reasonOf is an error's text, bounded.
func reasonOf(err error) string {
	return storable.Clip(storable.Text(errorText(err), store.MaxErrorSize), 1000)
}

// blame logs, once, an outcome that failed although other writes succeeded.
func (s *settler) blame(item *asideItem, wrote time.Duration) {
	if item.blamed || wrote <= item.since {
		return
	}
	s.aside.mu.Lock()
	item.blamed = true
	s.aside.clear--
	s.aside.mu.Unlock()
	item.x.logger().Error("the store does not accept the outcome of a run: it is set aside and retried at intervals", "event", "run.set_aside",
		"outcome", item.outcome.Kind.String(), "error", item.reason)
}

// dueAt is when an outcome is tried again. One that is not to blame waits for the end of an
// outage, after which others reclaim soon: it is due as soon as a write has succeeded, and
// after a pause that is short against the time for which they hold back.
func (s *settler) dueAt(item *asideItem) time.Duration {
	switch {
	case item.blamed:
		return max(item.due, s.aside.rest)
	case time.Duration(s.aside.accepted.Load()) > item.failedAt:
		return 0
	default:
		return min(item.due, item.failedAt+s.w.config.Terms.Duration/10)
	}
}

// nextAside is how long until an outcome is due; an hour when none is.
func (s *settler) nextAside(now time.Duration) time.Duration {
	wait := time.Hour
	for _, item := range s.aside.items {
		wait = min(wait, s.dueAt(item)-now)
	}
	return wait
}

// accepted records that the store has taken a write of the worker, of whatever kind.
// Outcomes that were set aside for want of one are tried now.
func (s *settler) accepted(now time.Duration) {
	s.aside.accepted.Store(int64(now))
	if s.owes() {
		poke(s.signal)
	}
}

// owes reports whether outcomes are set aside that the store has not refused while it took
// other writes.
func (s *settler) owes() bool {
	s.aside.mu.Lock()
	defer s.aside.mu.Unlock()
	return s.aside.clear > 0
}

// retryAside tries one outcome that was set aside, if one is due. When it lands,
// what kept it may be over: the others are due.
func (s *settler) retryAside(ctx context.Context) {
	if len(s.aside.items) == 0 {
		return
	}
	began := s.w.config.Elapsed()
	if ctx.Err() != nil {
		return
	}
	i := slices.IndexFunc(s.aside.items, func(item *asideItem) bool { return s.dueAt(item) <= began })
	if i < 0 {
		return
	}
	if s.tryAside(ctx, s.aside.items[i]) {
		for _, other := range s.aside.items {
			other.due, other.pause = 0, asideFirst
		}
		s.aside.failures = 0
		return
	}
	s.aside.failures++
	now := s.w.config.Elapsed()
	s.aside.rest = now + max(asideCalm*(now-began), min(settlePause<<min(s.aside.failures, 10), asideRest))
}

// tryAside tries one outcome that was set aside and reports whether it is settled.
func (s *settler) tryAside(ctx context.Context, item *asideItem) bool {
	wrote := time.Duration(s.wrote.Load())
	err := s.write(ctx, []ended{item.ended})
	if err != nil && ctx.Err() == nil {
		err = s.writeUnderLease(ctx, []ended{item.ended})
	}
	if err == nil {
		s.dropAside(item)
		if item.blamed {
			item.x.logger().Info("an outcome that was set aside is settled", "event", "run.resumed", "outcome", item.outcome.Kind.String())
		}
		return true
	}
	if ctx.Err() == nil {
		s.failAside(item, err, wrote)
	}
	return false
}

// failAside records that an outcome has failed again. wrote is when the last write
// before the try succeeded: a success during the try proves nothing, because an
// outage may have ended meanwhile.
func (s *settler) failAside(item *asideItem, err error, wrote time.Duration) {
	s.aside.mu.Lock()
	item.reason = reasonOf(err)
	s.aside.mu.Unlock()
	now := s.w.config.Elapsed()
	item.failedAt = now
	s.blame(item, wrote)
	item.due = now + s.w.jittered(item.pause)
	if !item.blamed {
		return
	}
	item.pause = min(2*item.pause, asideLongest)
	if !errors.Is(context.Cause(item.x.claim.ctx), lease.ErrLost) {
		return
	}
	if item.lost++; item.lost == asideLost {
		item.x.logger().Error("the outcome of a run is discarded: its lease is lost, and the store does not accept it", "event", "run.outcome_lost", "error", item.reason)
		s.forget(item)
	}
}

// forget gives an outcome up.
func (s *settler) forget(item *asideItem) {
	c := item.x.claim
	s.dropAside(item)
	if c.unsettled--; c.unsettled == 0 {
		s.over(c)
	}
}

// dropAside takes an outcome off the list.
func (s *settler) dropAside(item *asideItem) {
	s.aside.bytes -= item.size()
	s.aside.mu.Lock()
	s.aside.items = slices.DeleteFunc(s.aside.items, func(other *asideItem) bool { return other == item })
	if !item.blamed {
		s.aside.clear--
	}
	s.aside.mu.Unlock()
	s.countHeld()
}

// countHeld stops claims when too much is held, and resumes them when half of
// that is left.
func (s *settler) countHeld() {
	count, bytes := len(s.aside.items)+len(s.deferred), s.aside.bytes
	a := &s.aside
	a.mu.Lock()
	was := a.full
	a.locks, a.full = len(s.deferred), count >= heldMost || bytes >= heldBytes || was && (count > heldMost/2 || bytes > heldBytes/2)
	full := a.full
	a.mu.Unlock()
	switch {
	case full && !was:
		s.w.config.Logger.Error("the worker claims no more runs: it holds too many outcomes that the store rejects", "event", "worker.claims_stopped",
			"outcomes", count, "bytes", bytes, "locked", len(s.deferred), "runs", s.heldRuns())
	case was && !full:
		s.w.config.Logger.Info("the worker claims runs again", "event", "worker.claims_resumed", "outcomes", count)
		s.w.poller.Wake()
	}
}

// heldRuns names some runs whose outcomes are held.
func (s *settler) heldRuns() (ids []RunID) {
	for _, item := range s.aside.items[:min(len(s.aside.items), asideNamed)] {
		ids = append(ids, item.x.run.ID)
	}
	for i := 0; i < len(s.deferred) && len(ids) < asideNamed; i++ {
		ids = append(ids, s.deferred[i].x.run.ID)
	}
	return ids
}

// full reports whether too much is held to claim more.
func (s *settler) full() bool {
	s.aside.mu.Lock()
	defer s.aside.mu.Unlock()
	return s.aside.full
}

// status describes what is set aside.
func (s *settler) status() Unsettled {
	s.mu.Lock()
	crowded := s.w != nil && s.crowded()
	s.mu.Unlock()
	a := &s.aside
	a.mu.Lock()
	defer a.mu.Unlock()
	status := Unsettled{Locked: a.locks, Full: a.full || crowded}
	for _, item := range a.items {
		if !item.blamed {
			continue
		}
		status.Count++
		status.Reason = item.reason
		if len(status.Runs) < asideNamed {
			status.Runs = append(status.Runs, item.x.run.ID)
		}
	}
	return status
}

// lastTries tries each outcome that was set aside once more: the worker stops.
func (s *settler) lastTries(ctx context.Context) {
	for _, item := range slices.Clone(s.aside.items) {
		if ctx.Err() != nil {
			return
		}
		s.tryAside(ctx, item)
	}
}

// leave logs what is left to the leases when run ends.
func (s *settler) leave() {
	s.mu.Lock()
	s.closed = true
	left := append(s.left, s.waiting...)
	s.room.Broadcast()
	s.mu.Unlock()
	left = append(left, s.deferred...)
	var unsettled UnsettledError
	for _, item := range s.aside.items {
		if !item.blamed {
			left = append(left, item.ended)
			continue
		}
		unsettled.Runs, unsettled.Reason = append(unsettled.Runs, item.x.run.ID), item.reason
	}
	if len(left) > 0 {
		unsettled.Reason = cmp.Or(s.lastReason, "the drain was over before the store had taken them")
		for i := range left {
			unsettled.Runs = append(unsettled.Runs, left[i].x.run.ID)
		}
	}
	if len(unsettled.Runs) > 0 {
		s.unsettled = &unsettled
	}
	if len(left) > 0 {
		var some []RunID
		for i := range left[:min(len(left), asideNamed)] {
			some = append(some, left[i].x.run.ID)
		}
		s.w.config.Logger.Warn("outcomes left unsettled; their leases will expire", "event", "worker.unsettled", "runs", len(left), "some", some)
	}
}
