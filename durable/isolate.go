package durable

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/internal/claimplan"
)

// isolation decides when a worker takes an isolated run: one that has been in
// more than one crash and is therefore executed alone in its process, so that its
// next crash is certainly its own.
//
// A worker of a process in which nothing executes takes one immediately. Another
// makes room: when an isolated run has been due for a random while, below
// roomWithin, it claims nothing else, and neither do the other workers of its
// process, until all handlers have returned. It then executes isolated runs one
// after another for roomSpell, or one that takes longer, and after that gives
// other work at least as much time as all of it took. So an isolated run whose
// turn it is begins within max(roomWithin, H + 1 s) + H of when it is due, where
// H is the longest that a handler of the process takes, and other work has at
// least half of the worker's time.
//
// Handlers that run for longer than the worker's patience, at first roomLeast,
// make it give up. Other work then has three times as long as it has waited, and its patience
// doubles, up to roomMost. The runs that have delayed
// it are named, once each. With handlers that take longer than roomLeast, but not
// roomMost, the bound is therefore 10 H. A handler that has been given up, and has
// not returned, may crash the process at any time: while there is one, no isolated
// run is claimed by this process, and nothing is held up for it.
type isolation struct {
	aloneActive atomic.Bool // an isolated run is in hand

	making   bool          // room is being made, or has been: nothing else is claimed
	since    time.Duration // when that began
	first    time.Duration // when the first isolated run was claimed in it; negative: none yet
	missed   int           // claims in a row of isolated runs that got none
	patience time.Duration // how long it may take to make room; zero: roomLeast
	rest     time.Duration // other work goes first until this instant
	delay    time.Duration // how long a run must have been due; negative: to be drawn
	logged   bool          // it was logged that stuck handlers keep this process from isolated runs
}

const (
	roomWithin = 10 * time.Second
	roomSpell  = 10 * time.Second
	roomLeast  = 30 * time.Second
	roomMost   = 10 * time.Minute
)

// roomPause is how long a worker waits before it checks again whether there is room.
const roomPause = 20 * time.Millisecond

// aloneLogged is how long an isolated run may keep its worker from other work
// without a word.
const aloneLogged = time.Minute

// tellAlone warns, once, of an isolated run that takes long.
func (x *execution) tellAlone() {
	if !x.returned.Load() && x.resolution.Load() == unresolved {
		x.logger().Warn("isolated run still running; this worker executes nothing else until it finishes. If it hangs, cancel it or set a Timeout on its job", "event", "isolation.long",
			"for", aloneLogged.String())
	}
}

// mostReported bounds the runs that one message names.
const mostReported = 10

// isolate returns the claim of one isolated run, or whether to wait until there is
// room for one.
func (c *claimer) isolate(now time.Duration) (ask claimplan.Ask, alone, wait bool) {
	process := c.w.config.Process
	if len(c.plan.Isolated()) == 0 {
		c.makeWay(now, 1)
		c.patience, c.missed, c.logged = 0, 0, false
		return ask, false, false
	}
	if !c.making && !c.mayMakeRoom(now) {
		return ask, false, false
	}
	if !process.reserve(c.w) { // another worker of the process makes room: it takes them one after another
		c.makeWay(now, 1)
		return ask, false, true
	}
	if !c.making {
		c.making, c.since, c.first, c.missed = true, now, -1, 0
	}
	switch {
	case !process.quiet() && process.stuck():
		c.makeWay(now, 1)
		return ask, false, false
	case !process.quiet() && now-c.since >= max(c.patience, roomLeast):
		c.blame(now - c.since)
		c.patience = min(2*max(c.patience, roomLeast), roomMost)
		c.makeWay(now, 3)
		return ask, false, false
	case !process.quiet():
		return ask, false, true
	case c.missed >= len(c.plan.Isolated()): // others hold them all
		c.makeWay(now, 3)
		return ask, false, false
	case c.first >= 0 && now-c.first >= roomSpell && c.plan.AnyDue():
		c.patience = 0
		c.makeWay(now, 1)
		return ask, false, false
	}
	return c.plan.AskAlone(c.missed), true, false
}

// mayMakeRoom reports whether to begin to make room.
func (c *claimer) mayMakeRoom(now time.Duration) bool {
	process := c.w.config.Process
	rested := now >= c.rest
	if !process.quiet() {
		if c.delay < 0 {
			c.delay = time.Duration(float64(roomWithin) * c.w.config.Random())
		}
		if !rested || c.plan.IsolatedFor(now) < c.delay {
			return false
		}
		if process.stuck() {
			c.tellStuck()
			return false
		}
		return true
	}
	return rested || !c.plan.AnyDue()
}

// makeWay ends making room; other work goes first for so many times as long as
// that took.
func (c *claimer) makeWay(now time.Duration, times int) {
	if c.making {
		c.making, c.delay = false, -1
		c.rest = now + time.Duration(times)*(now-c.since)
		c.w.config.Process.release(c.w)
	}
}

// interrupted ends making room when the store does not answer, unless an isolated
// run may have been granted that is still to be begun.
func (c *claimer) interrupted() {
	now := c.w.config.Elapsed()
	if c.pending == nil || !c.pending.Alone || now >= c.w.config.Terms.Deadline(c.asked) {
		c.makeWay(now, 1)
	}
}

// answeredAlone records how many runs a claim of an isolated run has got.
func (c *claimer) answeredAlone(n int) {
	if n == 0 {
		c.missed++
		return
	}
	c.missed = 0
	if c.first < 0 {
		c.first = c.w.config.Elapsed()
	}
}

// blame names the runs in hand that have outlasted a while in which nothing was
// claimed so as to make room for an isolated run.
func (c *claimer) blame(while time.Duration) {
	var names []string
	for _, w := range c.w.config.Process.atWork() {
		now := w.config.Elapsed()
		for _, x := range w.inFlight.since(now - while) {
			if !x.reported && len(names) < mostReported {
				x.reported = true
				names = append(names, fmt.Sprintf("%s (%s, for %v)", x.run.ID, x.job, (now-x.claim.asked).Round(time.Second)))
			}
		}
	}
	if len(names) > 0 {
		c.w.config.Logger.Warn("isolated run waiting; this worker cannot take it until long-running runs finish. If they hang, cancel them or set a Timeout on their jobs", "event", "isolation.waiting",
			"isolated", c.plan.Isolated()[0].Job, "runs", names)
	}
}

// tellStuck warns, once, that this process takes no isolated run.
func (c *claimer) tellStuck() {
	if !c.logged {
		c.logged = true
		c.w.config.Logger.Warn("isolated run waiting; this process does not take it: an abandoned handler has not returned and might crash the process. Restart the process", "event", "isolation.blocked",
			"isolated", c.plan.Isolated()[0].Job)
	}
}
