package protocol

import (
	"math"
	"time"
)

// Drain decides how a worker that stops gives up its runs: handlers may finish
// for Timeout, then their contexts are cancelled, and those that have not returned
// Grace later are given up as stuck.
type Drain struct {
	Timeout time.Duration
	Grace   time.Duration

	phase DrainPhase
	until time.Duration // end of the phase
}

// DrainPhase is where a drain is.
type DrainPhase int8

// The phases, in order.
const (
	DrainNot        DrainPhase = iota // not begun
	DrainFinishing                    // handlers may finish
	DrainCancelling                   // their contexts are cancelled
	DrainDone                         // over
)

// DrainKind names an event of Drain.
type DrainKind int8

// The events of Drain.
const (
	DrainTick  DrainKind = iota // time has passed
	DrainStop                   // the worker stops
	DrainHurry                  // do not wait for handlers to finish
)

// DrainEvent is one event. Executing is the number of handlers that have not
// returned.
type DrainEvent struct {
	Kind      DrainKind
	At        time.Duration
	Executing int
}

// DrainEffects is what the worker has to do.
type DrainEffects struct {
	CancelHandlers bool          // cancel the contexts of all handlers
	Done           bool          // stop waiting; handlers still executing are stuck
	Wake           time.Duration // next DrainTick; negative: none needed
}

// Step handles one event.
func (d *Drain) Step(e DrainEvent) DrainEffects {
	var effects DrainEffects
	if e.Kind == DrainStop && d.phase == DrainNot {
		d.phase, d.until = DrainFinishing, after(e.At, d.Timeout)
	}
	if d.phase == DrainNot || d.phase == DrainDone {
		return DrainEffects{Wake: -1}
	}
	if d.phase == DrainFinishing && e.Executing > 0 && (e.Kind == DrainHurry || e.At >= d.until) {
		d.phase, d.until = DrainCancelling, after(e.At, d.Grace)
		effects.CancelHandlers = true
	}
	if e.Executing == 0 || d.phase == DrainCancelling && e.At >= d.until {
		d.phase = DrainDone
		effects.Done = true
	}
	effects.Wake = d.until
	return effects
}

// after is an instant a while after another, or the last there is.
func after(at, d time.Duration) time.Duration {
	if sum := at + d; sum >= at || d < 0 {
		return sum
	}
	return math.MaxInt64
}
