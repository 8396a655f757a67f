package durable

import (
	"fmt"
	"sync/atomic"
	"time"
)

// isolation decides when a worker takes an isolated run: one that has been in
// more than one crash and is therefore executed by a worker that holds nothing
// else, so that its next crash is certainly its own.
//
// A worker with nothing in hand takes one. A busy worker now and then stops
// claiming for a while so as to become empty; it begins at a random instant, so
// that not all workers do so at once, and gives up when the while is over, so
// that long runs do not keep its other slots idle. Each while in vain is followed
// by one of twice the length, up to clearMost, after three to nine times as long
// of ordinary work. A handler that hangs for ever and has no timeout keeps its
// worker from ever taking an isolated run: after the third while in vain the
// worker names, once each, the runs that keep it. Another worker may take it.
type isolation struct {
	aloneActive atomic.Bool   // an isolated run is in hand
	lastAlone   bool          // the last claim was of an isolated run: others come first now
	clearAfter  time.Duration // not before this instant; zero: not decided
	clearUntil  time.Duration // claiming is stopped until then
	clearFor    time.Duration // length of the last stop; zero: there was none
}

const (
	clearLeast = 5 * time.Second
	clearMost  = 10 * time.Minute
	clearTold  = 20 * time.Second // a while of this length, or more, was in vain: tell what keeps the worker
)

// aloneTold is how long an isolated run may keep its worker from other work
// without a word.
const aloneTold = time.Minute

// tellAlone warns, once, of an isolated run that goes on for long.
func (x *execution) tellAlone() {
	if !x.returned.Load() && x.fate.Load() == fateOpen {
		x.logger().Warn("an isolated run goes on: its worker executes nothing else until it ends; if it hangs, end it, or give its job a timeout",
			"for", aloneTold.String())
	}
}

// mostBlamed bounds the runs that are named at once.
const mostBlamed = 10

// isolate returns the steps of a claim of one isolated run, or whether to wait
// for the worker to become empty.
func (c *claimer) isolate(now time.Duration) (steps []Step, alone, wait bool) {
	if len(c.plan.isolated) == 0 {
		c.clearAfter, c.clearUntil, c.clearFor = 0, 0, 0
		return nil, false, false
	}
	if c.w.active.empty() {
		if c.lastAlone && c.plan.anyDue() {
			c.lastAlone = false
			return nil, false, false
		}
		c.lastAlone, c.clearUntil, c.clearFor = true, 0, 0
		return []Step{{Lane: c.plan.isolated[0].Lane, Take: 1}}, true, false
	}
	if c.clearAfter == 0 {
		c.clearAfter = now + time.Duration(float64(min(2*c.w.config.PollInterval, clearLeast))*c.w.config.Random())
	}
	if now >= c.clearAfter && now >= c.clearUntil {
		if c.clearFor >= clearTold {
			c.blame(now)
		}
		c.clearFor = min(max(2*c.clearFor, clearLeast), clearMost)
		c.clearUntil = now + c.clearFor
		c.clearAfter = c.clearUntil + time.Duration(float64(c.clearFor)*(3+6*c.w.config.Random()))
	}
	return nil, false, now < c.clearUntil
}

// blame names the runs in hand that have outlasted a while in which nothing was
// claimed so as to become empty for an isolated run.
func (c *claimer) blame(now time.Duration) {
	var names []string
	for _, x := range c.w.active.since(now - c.clearFor) {
		if !x.blamed && len(names) < mostBlamed {
			x.blamed = true
			names = append(names, fmt.Sprintf("%s (%s, for %v)", x.run.ID, x.job, (now-x.claim.asked).Round(time.Second)))
		}
	}
	if len(names) > 0 {
		c.w.config.Logger.Warn("an isolated run waits, and runs that go on for long keep this worker from taking it: if they hang, end them, or give their jobs a timeout",
			"isolated", c.plan.isolated[0].Job, "runs", names)
	}
}

// anyDue tells whether an ordinary lane is due.
func (p *plan) anyDue() bool {
	for _, l := range p.lanes {
		if l.due {
			return true
		}
	}
	return false
}
