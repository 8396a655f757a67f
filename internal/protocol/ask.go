package protocol

import (
	"time"

	"github.com/durable-worker/durable-worker/internal/saturate"
)

// Ask decides when a poller asks for more, and for how many.
//
// It asks immediately when it is idle. Otherwise free slots wait for company, so
// that one claim carries many runs: Linger for the first of them, and once a
// quarter of all is free a tenth of Linger for the rest, which handlers that
// take no time need to come in. It sleeps only after an answer that says that
// nothing is left.
//
// A wake-up reaches every worker of a fleet at the same time, and most come in
// vain. A worker that has often come in vain waits a random while first, the
// longer the oftener: with n workers the first of them still asks within about two
// milliseconds, and all together ask some five hundred times a second, however many
// they are, until the while is as long as it may be. A few workers never wait. A call
// is for this worker alone, or for few: it draws no lot, and does not count as in
// vain.
type Ask struct {
	Capacity int           // slots in all
	Batch    int           // most asked for per claim
	Interval time.Duration // sleep after an answer with nothing left
	Jitter   float64       // of the sleep: Interval·(1 ± Jitter)
	Linger   time.Duration // most that a free slot waits for company

	taken    int           // slots in use
	freedAt  time.Duration // when the first of the slots free now was freed
	manyAt   time.Duration // when a quarter of the slots was free
	sleeping time.Duration // no asking before this instant
	asking   bool
	woken    bool          // a wake-up came while asking: the answer may be older than it
	called   bool          // a wake-up ended the sleep
	recalled bool          // a call came while asking
	recallAt time.Duration // when it is to be answered
	vain     int           // questions after a wake-up that brought nothing; halved by one that did
	failures int
}

// Waiting after wake-ups in vain.
const (
	vainFree    = 16                     // so many are for nothing
	vainStep    = time.Millisecond       // each one more adds so much to the while
	vainLongest = 250 * time.Millisecond // a wake-up may also have been for other workers' jobs
)

// AskKind names an event of Ask.
type AskKind int8

// The events of Ask.
const (
	AskTick     AskKind = iota // time has passed
	AskFreed                   // Count slots came back
	AskWoken                   // something may be due
	AskAnswered                // Count slots were filled; see Left and Next
	AskFailed                  // the question failed
	AskCalled                  // something is due, and this worker is to look after Next, if it has not by then
)

// AskEvent is one event.
type AskEvent struct {
	Kind   AskKind
	At     time.Duration
	Count  int
	Left   bool          // of AskAnswered: there may be more; do not sleep
	Next   time.Duration // of AskAnswered without Left: more is known to come after so long; negative: unknown. Of AskCalled: when to look
	Random float64       // in [0, 1)
}

// AskEffects is what the poller has to do.
type AskEffects struct {
	Ask  int           // ask for so many now; zero: do not ask
	Wake time.Duration // next AskTick; negative: only an event can change anything
}

// Free returns the number of free slots.
func (a *Ask) Free() int { return a.Capacity - a.taken }

func (a *Ask) quarter() int { return (a.Capacity + 3) / 4 }

// Wanted is how many more free slots would change what is decided before the
// next tick.
func (a *Ask) Wanted() int {
	if free := a.Free(); free < a.quarter() {
		return a.quarter() - free
	}
	return a.taken
}

// Step handles one event.
func (a *Ask) Step(e AskEvent) AskEffects {
	switch e.Kind {
	case AskTick:
	case AskFreed:
		if a.taken == a.Capacity {
			a.freedAt = e.At
		}
		few := a.Free() < a.quarter()
		a.taken -= e.Count
		if few && a.Free() >= a.quarter() {
			a.manyAt = e.At
		}
	case AskWoken:
		if a.woken = a.asking; !a.asking {
			a.call(e)
		}
	case AskCalled:
		a.recall(saturate.Add(e.At, e.Next))
	case AskAnswered:
		a.answered(e)
	case AskFailed:
		a.asking, a.woken, a.called, a.recalled = false, false, false, false
		a.sleeping = saturate.Add(e.At, a.backoff(e.Random))
		a.failures++
	}
	return a.decide(e.At)
}

func (a *Ask) answered(e AskEvent) {
	a.asking, a.failures = false, 0
	a.taken += e.Count
	a.freedAt, a.manyAt = e.At, e.At
	switch {
	case e.Count > 0:
		a.vain /= 2
	case a.called:
		a.vain = min(a.vain+1, vainFree+int(vainLongest/vainStep))
	}
	a.called = false
	if !e.Left {
		a.sleeping = saturate.Add(e.At, a.sleep(e.Next, e.Random))
	}
	if a.woken {
		a.woken = false
		a.call(e)
	}
	if a.recalled {
		a.recalled = false
		a.recall(a.recallAt)
	}
}

// recall ends the sleep at an instant, or the one after the question under way,
// which may be older than the call.
func (a *Ask) recall(at time.Duration) {
	switch {
	case !a.asking:
		a.sleeping = min(a.sleeping, at)
	case !a.recalled || at < a.recallAt:
		a.recalled, a.recallAt = true, at
	}
}

// call ends the sleep, after a random while when wake-ups have been in vain.
func (a *Ask) call(e AskEvent) {
	while := time.Duration(max(a.vain-vainFree, 0)) * vainStep
	switch {
	case while == 0:
		a.sleeping = 0
	case !a.called:
		a.sleeping = min(a.sleeping, e.At+time.Duration(float64(while)*e.Random))
	}
	a.called = true
}

// sleep is the jittered interval, cut short when something is known to come
// due; then a small random part keeps the workers of a fleet from asking in step.
func (a *Ask) sleep(next time.Duration, random float64) time.Duration {
	pause := saturate.Scale(a.Interval, 1+a.Jitter*(2*random-1))
	if next >= 0 {
		spread := min(a.Interval/20, 20*time.Millisecond)
		pause = min(pause, saturate.Add(next, time.Duration(float64(spread)*random)))
	}
	return max(pause, 0)
}

// backoff doubles from 50 ms to the interval (at least a second), ±50 %.
func (a *Ask) backoff(random float64) time.Duration {
	pause := 50 * time.Millisecond << min(a.failures, 10)
	return time.Duration(float64(min(pause, max(a.Interval, time.Second))) * (0.5 + random))
}

func (a *Ask) decide(now time.Duration) AskEffects {
	free := a.Free()
	switch {
	case a.asking || free <= 0:
		return AskEffects{Wake: -1}
	case now < a.sleeping:
		return AskEffects{Wake: a.sleeping}
	}
	if a.taken > 0 {
		ripe := a.freedAt + a.Linger
		if free >= a.quarter() {
			ripe = min(ripe, a.manyAt+a.Linger/10)
		}
		if now < ripe {
			return AskEffects{Wake: ripe}
		}
	}
	a.asking = true
	return AskEffects{Ask: min(free, a.Batch), Wake: -1}
}
