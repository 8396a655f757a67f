package durable

import (
	"context"
	"time"
)

// question is ask while no other claim stands in the way.
func (c *claimer) question(ctx context.Context, n int) (answer, error) {
	now := c.w.config.Elapsed()
	n = c.sizer.bound(n)
	called := c.calls.take(now)
	guess := c.guess(called, now)
	if guess != guessNone && c.reach.below(now) {
		c.plan.unmark()
	}
	if guess == guessNone && (c.resting || c.plan.stale || now-c.headsAt >= headsEvery) {
		if err := c.readHeads(ctx, now); err != nil {
			return answer{}, err
		}
	}
	steps, alone, wait := c.isolate(now)
	if !alone && !wait {
		steps = c.plan.steps(n, c.room)
	}
	c.resting = !c.plan.anyDue() && len(c.plan.isolated) == 0
	switch {
	case c.pending != nil:
		guess = guessNone
		c.again(steps, alone, n)
	case wait:
		return answer{Next: roomPause}, nil
	case len(steps) == 0:
		c.passCalls(called)
		return answer{Next: c.plan.soon()}, nil
	case !alone && !c.w.config.Process.enter(c.w):
		c.passCalls(called)
		return answer{Next: roomPause}, nil
	default:
		c.request(steps, alone, n)
		c.pending.Guess = guess != guessNone
	}
	alone = c.pending.Alone
	got, err := c.send(ctx)
	if err == nil {
		c.answered(alone, len(got.Items))
	}
	if err == nil && len(got.Items) == 0 && guess == guessNone {
		c.empty++ // what is due is being claimed by others at this moment
		return answer{Next: min(5*time.Millisecond<<min(c.empty, 10), c.w.config.PollInterval)}, nil
	}
	c.empty = 0
	if err == nil && (guess == guessNamed || guess == guessNone && !alone && c.w.fleet != nil && c.w.listens.Load()) {
		return c.relax(got, n, called), nil
	}
	return got, err
}

// guess is what a claim goes by that is made without reading the heads.
type guess int8

const (
	guessNone  guess = iota
	guessAll         // runs may be due in any lane
	guessNamed       // runs are due in the lanes that a wake-up named
)

// guess makes the lanes candidates that wake-ups were about, and reports whether they
// may be claimed from without reading the heads. However many come, the heads are
// read each poll interval.
func (c *claimer) guess(called called, now time.Duration) guess {
	known := c.plan.call(called.lanes)
	if !known {
		c.plan.stale = true
	}
	switch {
	case !c.resting || called.later:
		return guessNone
	case called.anywhere && c.plan.blind():
		return guessAll
	case called.anywhere || len(called.lanes) == 0 || !known || len(called.lanes) > blindMost || now >= c.headsDue:
		return guessNone
	default:
		return guessNamed
	}
}

// relax records what a claim of up to n runs has got, by a wake-up that named its
// lanes or by the heads, where wake-ups will name those in which there is more. When
// it had room for more, nothing is known to be left, and the worker rests without
// looking again; else it reports others.
func (c *claimer) relax(got answer, n int, called called) answer {
	if len(got.Items) >= n {
		for lane, due := range called.lanes {
			c.w.share(lane, due)
		}
		return got
	}
	if c.resting = !c.plan.anyDue() && len(c.plan.isolated) == 0; !c.resting {
		return got
	}
	c.plan.stale = false
	if called.again > 0 {
		c.w.poller.Call(called.again)
	}
	got.Left, got.Next = false, c.soon(c.w.config.Elapsed())
	return got
}

// soon is how long to sleep without having read the heads: until they are due, or
// the first run that is known of.
func (c *claimer) soon(now time.Duration) time.Duration {
	next := c.headsDue - now
	if c.nextAt >= 0 {
		next = min(next, c.nextAt-now)
	}
	if later := c.calls.next(now); later >= 0 {
		next = min(next, later)
	}
	return max(next, 0)
}

// passCalls passes wake-ups on for which there is no room.
func (c *claimer) passCalls(called called) {
	for _, due := range called.lanes {
		if l := c.plan.byID[due.Lane]; l != nil && due.After == 0 && c.room(l.Queue) == 0 {
			c.w.passOn(due)
		}
	}
}
