package durable

import (
	"context"
	"slices"
	"time"

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
		if draining {
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
