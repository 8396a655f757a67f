package durable

import (
	"context"
	"errors"
	"time"

	"github.com/durable-worker/durable-worker/internal/claimplan"
)

// A claim without an answer has an unknown outcome: its runs may be leased to
// this worker, which does not know them. It is retried under the same id, and
// the answer is what it holds. When a retry cannot help, because the answer
// takes longer than a call may, or would come late, or the worker stops, the
// claim is handed back by its id. Either way no run that was never begun waits
// for a lease to expire, and none is charged a crash.

// again updates what the pending claim, whose outcome is unknown, asks for. A claim of
// limited runs stays one. Its id and the instant from which its deadline counts stay too: if
// it was granted the first time, the answer is the runs of that time. If the answer arrives
// after the deadline, they are handed back immediately, neither begun nor counted as crashed.
func (c *claimer) again(ask claimplan.Ask, alone bool) {
	c.pending.Guess = false
	if !c.pending.Alone && !alone && !ask.Empty() && (len(ask.Admissions) > 0) == (len(c.pending.Admissions) > 0) {
		c.pending.Steps, c.pending.Admissions, c.pending.Lanes, c.pending.Limit = ask.Steps, ask.Admissions, ask.Lanes, ask.Limit
	}
}

// claimTimeout bounds one claim, so that enough of its lease is left to hand it back.
func (c *claimer) claimTimeout() time.Duration {
	return min(c.w.callTimeout(), max(c.w.config.Terms.Duration/2, time.Second))
}

// send sends the pending claim, for the first time or again.
func (c *claimer) send(ctx context.Context) (answer, error) {
	request, began := *c.pending, c.w.config.Elapsed()
	var exhausted bool
	c.rests, request.Exhausted = false, &exhausted
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.claimTimeout())
	defer cancel()
	runs, err := c.w.store.Claim(bounded, request)
	c.w.observeWrite(began, len(runs), err)
	if err != nil {
		c.w.warn(bounded, "claim.failed", "claim failed, will be retried", err)
		c.failed(bounded)
		return answer{}, err
	}
	c.pending, c.rests = nil, exhausted
	if c.w.config.Elapsed()-began < c.claimTimeout()/quickClaim {
		c.plan.ClaimWasQuick(len(runs))
	}
	c.plan.ApplyClaim(&request, runs)
	if len(runs) == 0 {
		return answer{Left: true}, nil
	}
	return answer{Items: c.begin(request, runs), Left: true}, nil
}

// quickClaim is the part of its timeout within which a claim must be answered for the next
// one to ask for twice as many runs.
const quickClaim = 4

// failed records that the pending claim got no answer. A claim that timed out is handed back,
// since a retry would probably time out again.
func (c *claimer) failed(bounded context.Context) {
	c.givesUp = c.isLate() || errors.Is(bounded.Err(), context.DeadlineExceeded)
	if !c.w.unreachable() {
		c.plan.ClaimFailed(c.pending.Limit)
	}
}

// isLate reports whether a retry of the pending claim, which may take half of its lease, would
// leave too little time to hand it back.
func (c *claimer) isLate() bool {
	return c.pending != nil && c.w.config.Elapsed()-c.asked > c.w.config.Terms.Duration/4
}

// handBack hands the pending claim back: its runs are requeued.
func (c *claimer) handBack(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, c.claimTimeout())
	defer cancel()
	sent := c.w.config.Elapsed()
	held, err := c.w.store.HandBack(bounded, *c.pending)
	c.w.observeWrite(sent, 0, err) // it may have had nothing to write
	if err == nil && held > 0 {
		err = errHeld
	}
	if err != nil {
		c.w.warn(bounded, "claim.hand_back_failed", "handing back a claim whose reply was lost failed, will be retried", err)
		return err
	}
	c.w.config.Logger.Info("the reply to a claim was lost; the claim was handed back", "event", "claim.handed_back", "claim", c.pending.Claim.Short())
	c.answered(c.pending.Alone, 0)
	c.pending, c.givesUp = nil, false
	c.plan.Outdate()
	return nil
}

var errHeld = errors.New("some of its runs are locked by another transaction")

// resign hands back the claim whose outcome is unknown when the worker stops claiming. It
// retries for as long as handlers have to return after they are cancelled.
func (c *claimer) resign(ctx context.Context) {
	c.givesUp = c.pending != nil
	outer, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(c.w.config.CancelGrace, time.Second))
	defer cancel()
	pause := 20 * time.Millisecond
	for c.givesUp && c.handBack(outer) != nil {
		if !c.w.sleep(outer, c.w.jittered(pause)) {
			c.w.config.Logger.Warn("a claim whose reply was lost was left; its lease will expire", "event", "claim.left", "claim", c.pending.Claim.Short())
			return
		}
		pause = min(2*pause, time.Second)
	}
}
