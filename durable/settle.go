package durable

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/internal/verify"
	"github.com/durable-worker/durable-worker/store"
)

// settler gathers the outcomes of executions and writes them together. It
// repeats a write whose outcome is unknown until the store answers: the claim
// id makes a repeat harmless and a late one refused. An outcome that the store
// does not take is set aside, so that it stops no other (see asideOutcomes).
type settler struct {
	w     *Worker
	limit int // outcomes that may wait; beyond it a handler's goroutine, and so its slot, waits

	mu      sync.Mutex
	waiting []ended
	taken   []ended // what take gave last, and room for the next; the run method's own
	bytes   int     // of the waiting outcomes
	awaited bool    // one of them is the last of a limited claim, for whose places others wait
	room    sync.Cond
	logged  bool // it was logged that handlers wait for room
	lifted  bool // the worker drains: no handler waits for room any more
	closed  bool
	signal  chan struct{}

	wrote atomic.Int64 // monotonic time when a settle or a renewal last succeeded
	// wroteBefore is what wrote was before the last try of persist; the run method's own.
	wroteBefore time.Duration

	// The run method's own.
	failures int             // calls in a row that failed
	settled  []store.Settled // room for what one call writes
	deferred []ended         // their rows were locked by another transaction
	deferAt  time.Duration   // monotonic time when the deferred ones are settled again
	left     []ended         // given up: ctx has ended
	aside    asideOutcomes
	verified verification

	unsettled  *UnsettledError // once run has ended: the outcomes that are left
	lastReason string          // why the last call has failed; empty: it has not
}

// ended is an execution with its outcome.
type ended struct {
	x       *execution
	outcome store.Outcome
}

// size is what an outcome adds to a statement, roughly.
func (e *ended) size() int {
	return 64 + len(e.outcome.Error) + len(e.outcome.Stack) + len(e.outcome.Result) + len(e.outcome.Log)
}

const (
	// settleLinger is the most that an outcome waits for company while other
	// handlers are still executing.
	settleLinger = 2 * time.Millisecond
	// settleBatch and settleBytes bound the outcomes of one transaction.
	settleBatch = 1000
	settleBytes = 2 << 20
	// takenMost bounds the room for outcomes that is kept while there are none.
	takenMost = 4 * settleBatch
	// waitingBytes bounds the outcomes that wait.
	waitingBytes = 64 << 20
	// deferredPause is the time after which a run whose row was locked by another
	// transaction is settled again.
	deferredPause = 250 * time.Millisecond
	// settlePause is the pause after a call that failed. From settleQuick failures
	// in a row on, more than it takes to find one bad outcome in a full batch, it
	// doubles.
	settlePause = 20 * time.Millisecond
	settleQuick = 24
	// A batch that fails is tried twice before it is divided, and an outcome
	// alone four times before it is set aside.
	triesTogether = 2
	triesAlone    = 4
)

func (s *settler) init(w *Worker) {
	s.mu.Lock() // a health check may read already
	defer s.mu.Unlock()
	s.w, s.limit, s.signal = w, 4*w.config.MaxConcurrentRuns+settleBatch, make(chan struct{}, 1)
	s.room.L = &s.mu
	s.wrote.Store(-1)
	s.verified.outcomes = verify.New(w.id)
}

// add takes over an outcome. After close it is dropped: its worker has given
// up the run.
func (s *settler) add(x *execution, outcome store.Outcome) {
	s.mu.Lock()
	for s.crowded() {
		s.tellCrowded()
		s.room.Wait()
	}
	if s.closed {
		s.mu.Unlock()
		x.logger().Warn("a handler has returned after its worker had stopped; its outcome is dropped, and its lease will expire", "event", "run.dropped",
			"outcome", outcome.Kind.String())
		return
	}
	e := ended{x, outcome}
	s.waiting = append(s.waiting, e)
	s.bytes += e.size()
	x.claim.ended++
	last := x.claim.limited && x.claim.ended == len(x.claim.runs)
	s.awaited = s.awaited || last
	now := last || len(s.waiting) == 1 || len(s.waiting) == settleBatch
	s.mu.Unlock()
	if now {
		poke(s.signal)
	}
}

// crowded reports whether a handler that has returned has to wait for room. s.mu
// is held.
func (s *settler) crowded() bool {
	return (len(s.waiting) >= s.limit || s.bytes >= waitingBytes) && !s.lifted && !s.closed
}

// tellCrowded says, once each time, that handlers wait for room. s.mu is held.
func (s *settler) tellCrowded() {
	if !s.logged {
		s.logged = true
		s.w.config.Logger.Error("outcomes wait to be written, and the slots of their handlers stay taken until the store accepts them", "event", "worker.outcomes_wait",
			"outcomes", len(s.waiting), "bytes", s.bytes)
	}
}

// lift removes the bound on waiting outcomes. The worker claims no more, so only the outcomes
// of handlers that are executing follow, and they use memory either way.
func (s *settler) lift() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lifted = true
	s.room.Broadcast()
}

// close makes run return when everything added so far is settled.
func (s *settler) close() {
	s.mu.Lock()
	s.closed = true
	s.room.Broadcast()
	s.mu.Unlock()
	poke(s.signal)
}

// run settles until close, or until ctx ends; what is not settled then is left
// to the lease.
func (s *settler) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer s.leave()
	for last := false; ; {
		batch, closed := s.take()
		s.settle(ctx, batch)
		s.settleDeferred(ctx)
		s.retryAside(ctx)
		s.verifySettled(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case len(batch) > 0:
			s.lingerForLimited(ctx)
			continue
		case closed && !last:
			last = true
			s.lastTries(ctx)
			continue
		case closed && len(s.deferred) == 0:
			return
		}
		timer.Reset(s.wake())
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.signal:
			s.linger(ctx)
		}
	}
}

// wake returns how long it is until the next retry is due.
func (s *settler) wake() time.Duration {
	now := s.w.config.Elapsed()
	wait := min(s.nextAside(now), s.nextVerification(now))
	if len(s.deferred) > 0 {
		wait = min(wait, s.deferAt-now)
	}
	return max(wait, 0)
}

// linger waits for company as long as handlers are executing that may bring it.
func (s *settler) linger(ctx context.Context) {
	s.mu.Lock()
	alone := len(s.waiting) < settleBatch && !s.closed && !s.awaited
	s.mu.Unlock()
	if !alone || s.w.inFlight.len() == 0 {
		return
	}
	timer := time.NewTimer(settleLinger)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-s.signal:
	}
}

// lingerForLimited lingers if the outcomes that have come during a settle are of a limited
// claim: the runs that it started during that settle end now, and free their places together.
func (s *settler) lingerForLimited(ctx context.Context) {
	s.mu.Lock()
	limited := len(s.waiting) > 0 && s.waiting[0].x.claim.limited
	s.mu.Unlock()
	if !limited {
		return
	}
	select { // the poke of the first one
	case <-s.signal:
	default:
	}
	s.linger(ctx)
}

// take returns the next batch, which is the caller's until the next call.
func (s *settler) take() (batch []ended, closed bool) {
	clear(s.taken)
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := portion(s.waiting)
	batch, s.taken, s.waiting = s.waiting[:n:n], s.waiting, append(s.taken[:0], s.waiting[n:]...)
	if cap(s.taken) > takenMost {
		s.taken = nil
	}
	s.bytes -= bytes
	s.awaited = false
	if s.logged = s.logged && len(s.waiting) > s.limit/2; n > 0 {
		s.room.Broadcast()
	}
	return batch, s.closed
}

// portion is how many of the outcomes make one batch, bounded in number and in
// bytes.
func portion(all []ended) (n, bytes int) {
	for n < min(len(all), settleBatch) && (n == 0 || bytes+all[n].size() <= settleBytes) {
		bytes += all[n].size()
		n++
	}
	return n, bytes
}

// settleDeferred settles again what another transaction had locked, if it is time.
func (s *settler) settleDeferred(ctx context.Context) {
	if len(s.deferred) == 0 || s.w.config.Elapsed() < s.deferAt {
		return
	}
	again := s.deferred
	s.deferred = nil
	for i := range again {
		s.aside.bytes -= again[i].size()
	}
	for len(again) > 0 {
		n, _ := portion(again)
		s.settle(ctx, again[:n:n])
		again = again[n:]
	}
	s.countHeld()
}

// settle writes one batch, in halves when it fails again: what cannot be written
// in time, or not at all, is then written alone, and set aside if that fails as
// well. When it returns every outcome is settled, deferred or set aside; when ctx
// has ended, the rest is left.
func (s *settler) settle(ctx context.Context, batch []ended) {
	if len(batch) == 0 {
		return
	}
	for parts := [][]ended{batch}; len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		began := s.w.config.Elapsed()
		err := s.persist(ctx, part)
		half := len(part) / 2
		switch {
		case err == nil:
		case ctx.Err() != nil:
			s.left = append(s.left, part...)
			for _, part := range parts {
				s.left = append(s.left, part...)
			}
			return
		case half == 0:
			s.setAside(part[0], err, began)
		default:
			parts = append([][]ended{part[:half:half], part[half:]}, parts...)
		}
	}
}

// persist repeats the call until it succeeds, ctx ends, or it is time to try
// with fewer. While the store is cut off it repeats the same batch: fewer would
// not help. The pauses are short against the time for which workers hold back
// from reclaiming after an outage, so that what a living worker hands back is
// there first.
func (s *settler) persist(ctx context.Context, batch []ended) error {
	tries := triesTogether
	if len(batch) == 1 {
		tries = triesAlone
	}
	for try := 1; ; try++ {
		write := s.write
		if len(batch) == 1 && try > tries/2 {
			write = s.writeUnderLease
		}
		s.wroteBefore = time.Duration(s.wrote.Load())
		err := write(ctx, batch)
		if err == nil {
			s.lastReason = ""
			return nil
		}
		s.lastReason = reasonOf(err)
		s.w.warn(ctx, "settle.failed", "settle failed, will be retried", err)
		if errors.Is(err, context.DeadlineExceeded) {
			try++ // it took long, and others wait
		}
		pause := min(settlePause<<min(max(s.failures-settleQuick, 0), 10), time.Second, s.w.config.Terms.Duration/10)
		if !s.w.sleep(ctx, s.w.jittered(pause)) || try >= tries && !s.w.unreachable() {
			return err
		}
	}
}

// write makes one call of the store.
func (s *settler) write(ctx context.Context, batch []ended) error {
	claims, settlements := s.group(batch)
	return s.send(ctx, batch, claims, settlements)
}

// writeUnderLease writes outcomes and leaves the leases of their claims to expire,
// also of those that have no other run: where the store cannot end a lease, that
// keeps no outcome waiting. Reclaim ends a lease without runs, and charges no run.
func (s *settler) writeUnderLease(ctx context.Context, batch []ended) error {
	claims, settlements := s.group(batch)
	for i := range settlements {
		settlements[i].Last = false
	}
	return s.send(ctx, batch, claims, settlements)
}

func (s *settler) send(ctx context.Context, batch []ended, claims []*claim, settlements []store.Settlement) error {
	for i := range settlements {
		if settlements[i].Last {
			claims[i].hold.Ending()
		}
	}
	bounded, cancel := context.WithTimeout(ctx, s.w.callTimeout())
	defer cancel()
	sent := s.w.config.Elapsed()
	verdicts, err := s.w.store.Settle(bounded, settlements)
	s.w.observeWrite(sent, accepted(verdicts), err)
	if err != nil {
		s.settled = nil // a store that has not answered may still read it
		s.failures++
		return err
	}
	s.failures = 0
	s.wrote.Store(int64(s.w.config.Elapsed()))
	s.conclude(ctx, claims, settlements, verdicts, batch)
	clear(s.settled)
	return nil
}
