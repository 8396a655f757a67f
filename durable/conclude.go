package durable

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/internal/verify"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// group orders a batch by claim and turns it into settlements.
func (s *settler) group(batch []ended) ([]*claim, []store.Settlement) {
	position := make(map[*claim]int, 4)
	for _, e := range batch {
		if _, known := position[e.x.claim]; !known {
			position[e.x.claim] = len(position)
		}
	}
	if len(position) > 1 {
		slices.SortStableFunc(batch, func(a, b ended) int { return position[a.x.claim] - position[b.x.claim] })
	}
	claims := make([]*claim, 0, len(position))
	settlements := make([]store.Settlement, 0, len(position))
	s.settled = slices.Grow(s.settled[:0], len(batch))[:len(batch)]
	settled, start, draining := s.settled, 0, s.w.phase.Load() != phaseWorking
	for i, e := range batch {
		settled[i] = store.Settled{ID: e.x.run.ID, Lane: e.x.run.Lane, Outcome: e.outcome}
		if draining || e.outcome.Kind == store.Misfit { // workers of other processes are to take it
			settled[i].Lane = 0
		}
		if i+1 < len(batch) && batch[i+1].x.claim == e.x.claim {
			continue
		}
		c := e.x.claim
		claims = append(claims, c)
		settlements = append(settlements, store.Settlement{Claim: c.id, Worker: s.w.id, Runs: settled[start : i+1 : i+1],
			Limited: c.limited, Last: c.unsettled == i+1-start, Claimed: len(c.runs)})
		start = i + 1
	}
	return claims, settlements
}

// conclude counts what is settled, reports what was refused and keeps what was
// deferred. batch is in the order of the settlements.
func (s *settler) conclude(ctx context.Context, claims []*claim, settlements []store.Settlement, verdicts []store.Verdict, batch []ended) {
	s.w.observeSettled(batch, verdicts)
	i, now := 0, s.w.config.Elapsed()
	for n, c := range claims {
		for range settlements[n].Runs {
			e := batch[i]
			switch verdicts[i] {
			case store.Deferred:
				s.putOff(e)
				c.unsettled++ // it is counted out below
			case store.Applied, store.AlreadyApplied:
				if e.x.verifies() {
					e.x.logVerified(e.outcome, verdicts[i])
				}
				s.remember(&e, verdicts[i], now)
				if e.outcome.Kind == store.Snoozed {
					s.w.releaser.Look(e.x.begunBook().Looks())
				}
				if e.outcome.Kind == store.Death {
					poke(s.w.deaths)
				}
				if e.x.run.Linked {
					s.w.releaser.Notice()
				}
				s.w.announceEnd(ctx, e.x.run.ID, now)
			case store.Rejected:
				e.x.logger().Warn("stale settle rejected: the run belongs to another claim", "event", "run.refused",
					"claim", c.id.Short(), "outcome", e.outcome.Kind.String())
			}
			i++
		}
		if c.unsettled -= len(settlements[n].Runs); c.unsettled == 0 {
			s.over(c)
		}
	}
}

// over ends a claim whose runs have all been settled.
func (s *settler) over(c *claim) {
	c.watch()
	c.lost.Load().stop()
	if c.warning != nil {
		c.warning.Stop()
	}
	c.hold.Release()
	s.w.inFlight.remove(c)
	s.w.aloneEnded(c)
}

// putOff keeps an outcome whose run is locked by another transaction.
func (s *settler) putOff(e ended) {
	if len(s.deferred) == 0 {
		s.deferAt = s.w.config.Elapsed() + deferredPause
	}
	s.deferred = append(s.deferred, e)
	s.aside.bytes += e.size()
	s.countHeld()
}

// aloneEnded lets a worker claim again when its isolated run is settled, given
// up or set aside, whichever comes first.
func (w *Worker) aloneEnded(c *claim) {
	if c.alone && !c.aloneOver.Swap(true) && w.claimer.aloneActive.Swap(false) {
		w.poller.Wake()
	}
}

// accepted counts the verdicts by which something was written.
func accepted(verdicts []store.Verdict) (n int) {
	for _, verdict := range verdicts {
		if verdict == store.Applied {
			n++
		}
	}
	return n
}

// announceEnd notifies waiters that a run may have ended. A run that is to
// be executed again is announced too: only the store knows whether it is.
func (w *Worker) announceEnd(ctx context.Context, id RunID, now time.Duration) {
	if !w.awaited.Has(id, now) {
		return
	}
	if err := w.store.Publish(ctx, store.Signal{Kind: store.RunEnded, Run: id}); err != nil {
		w.warn(ctx, "run.end_not_announced", "announcing the end of a run failed, waiters will find it by polling", err)
	}
}

const (
	// verifyPause is the least time between two verifications, and verifyTries is how often
	// one is tried.
	verifyPause = time.Second
	verifyTries = 30
)

// verification is what the settler knows of outcomes that are stored, which the database may
// lose. They are verified after each outage, and when another server answers.
type verification struct {
	wanted   atomic.Bool
	needless atomic.Bool // the store has no server that could be replaced

	// The run method's own.
	outcomes *verify.Outcomes
	due      time.Duration // monotonic time before which nothing is verified
	tries    int           // in a row, without a result
}

// keep says whether outcomes have to be remembered.
func (s *settler) keep(yes bool) { s.verified.needless.Store(!yes) }

// remember takes note of an outcome that is stored. One that the handler has stored in its own
// transaction is not remembered: if that is lost, so are the handler's effects.
func (s *settler) remember(e *ended, verdict store.Verdict, now time.Duration) {
	if s.verified.needless.Load() || verdict == store.AlreadyApplied && e.x.verifies() {
		return
	}
	run, size := verify.Run{Holder: store.Holder{Run: e.x.run.ID, Claim: e.x.claim.id}, Lane: e.x.run.Lane, Claimed: len(e.x.claim.runs), Limited: e.x.claim.limited}, 0
	if e.outcome.Kind != store.Success || e.outcome.Result != nil || e.outcome.Log != "" {
		outcome := e.outcome
		run.Outcome, size = &outcome, e.size()
	}
	s.verified.outcomes.Remember(now, run, size)
}

// verify has the latest outcomes verified soon.
func (s *settler) verify() {
	s.verified.wanted.Store(true)
	poke(s.signal)
}

// nextVerification is how long until outcomes are verified; an hour when that is not wanted.
func (s *settler) nextVerification(now time.Duration) time.Duration {
	if !s.verified.wanted.Load() {
		return time.Hour
	}
	return s.verified.due - now
}

// verifySettled verifies the latest outcomes, if that is wanted and due.
func (s *settler) verifySettled(ctx context.Context) {
	v := &s.verified
	if s.w.config.Elapsed() < v.due || ctx.Err() != nil || !v.wanted.Swap(false) || v.needless.Load() {
		return
	}
	inHand := s.w.inFlight.held()
	result, err := v.outcomes.Verify(ctx, verifying{s.w}, func(claim lease.ClaimID) bool { return inHand[claim] != nil })
	v.due = s.w.config.Elapsed() + s.w.jittered(min(verifyPause, s.w.config.Terms.Duration/10))
	if result.Settled > 0 {
		s.w.config.Logger.Warn("the database had lost outcomes that it had acknowledged; they are settled again", "event", "run.settled_again", "runs", result.Settled)
	}
	if err != nil {
		s.w.warn(ctx, "settle.not_verified", "verifying outcomes after an outage failed, will be retried", err)
	}
	if v.tries++; err == nil && !result.Locked {
		v.tries = 0
	} else if v.tries < verifyTries {
		v.wanted.Store(true)
	}
}

// verifying is the worker's store, with calls that are bounded and observed.
type verifying struct{ w *Worker }

// StillHeld passes the call on.
func (v verifying) StillHeld(ctx context.Context, holders []store.Holder) ([]store.RunID, error) {
	bounded, cancel := context.WithTimeout(ctx, v.w.callTimeout())
	defer cancel()
	held, err := v.w.store.StillHeld(bounded, holders)
	v.w.observeCall(err)
	return held, err
}

// Settle passes the call on.
func (v verifying) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	bounded, cancel := context.WithTimeout(ctx, v.w.callTimeout())
	defer cancel()
	sent := v.w.config.Elapsed()
	verdicts, err := v.w.store.Settle(bounded, settlements)
	v.w.observeWrite(sent, accepted(verdicts), err)
	return verdicts, err
}
