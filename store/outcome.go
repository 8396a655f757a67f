package store

import (
	"fmt"
	"time"
)

// OutcomeKind says how an execution ended.
type OutcomeKind int16

// The kinds of outcome. The numbers are stored.
const (
	Success      OutcomeKind = 1 // the run is succeeded
	Failure      OutcomeKind = 2 // a failed attempt; the run is pending again, due after Outcome.After
	Death        OutcomeKind = 3 // a failed attempt that was the last; the run is dead
	Cancellation OutcomeKind = 4 // the run is cancelled
	Snoozed      OutcomeKind = 5 // the handler asked for later; the attempt is refunded
	HandedBack   OutcomeKind = 6 // interrupted by a drain or a lost lease; due now, the attempt is refunded
	Crash        OutcomeKind = 7 // its worker's lease expired; only Reclaim records it
	Misfit       OutcomeKind = 8 // its args do not fit the program that took it; due after Outcome.After, the attempt is refunded
)

var outcomeNames = map[OutcomeKind]string{ //nolint:gochecknoglobals // a constant table
	Success: "success", Failure: "failure", Death: "dead", Cancellation: "cancelled",
	Snoozed: "snoozed", HandedBack: "handed back", Crash: "crash", Misfit: "misfit",
}

// String returns the kind's word.
func (k OutcomeKind) String() string {
	if name, ok := outcomeNames[k]; ok {
		return name
	}
	return fmt.Sprintf("outcome(%d)", int16(k))
}

// MarshalText writes the kind's word.
func (k OutcomeKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the kind's word.
func (k *OutcomeKind) UnmarshalText(text []byte) error {
	for kind, name := range outcomeNames {
		if name == string(text) {
			*k = kind
			return nil
		}
	}
	return fmt.Errorf("%q is not an outcome", text)
}

// State is the state a run has after an outcome of this kind.
func (k OutcomeKind) State() State {
	switch k {
	case Success:
		return Succeeded
	case Death:
		return Dead
	case Cancellation:
		return Cancelled
	default:
		return Pending
	}
}

// Refunded reports whether the attempt does not count.
func (k OutcomeKind) Refunded() bool {
	return k == Snoozed || k == HandedBack || k == Crash || k == Misfit
}

// Settled reports whether a worker settles executions with outcomes of this kind.
func (k OutcomeKind) Settled() bool { return k >= Success && k <= Misfit && k != Crash }

// SettledKinds lists the kinds of outcome that workers settle.
func SettledKinds() []OutcomeKind {
	return []OutcomeKind{Success, Failure, Death, Cancellation, Snoozed, HandedBack, Misfit}
}

// Recorded reports whether the outcome becomes a row of the run's attempts. The
// run itself shows a success, unless it has log lines, and what a handler or a
// drain put back left no trace worth keeping.
func (k OutcomeKind) Recorded() bool {
	return k == Failure || k == Death || k == Cancellation || k == Crash || k == Misfit
}

// Outcome is what an execution decided, as data.
type Outcome struct {
	Kind   OutcomeKind
	After  time.Duration // until the run is due again, for Failure, Snoozed and Misfit
	Error  string        // for Failure, Death, Cancellation and Misfit; valid UTF-8 without NUL, bounded
	Stack  string        // of a panic; likewise
	Result []byte        // JSON, for Success; nil for none
	Log    string        // lines of the handler, for Success and what is Recorded; as Error
	Took   time.Duration // by the handler; zero: not known, and the attempt ends when it is settled
	// Unbegun: the handler was not called, so that the starts are given back which limits
	// on rates have counted. Only with HandedBack and Misfit.
	Unbegun bool
}

// GivesBack reports whether limits on rates get back the starts that they have counted.
func (o *Outcome) GivesBack() bool {
	return o.Unbegun && (o.Kind == HandedBack || o.Kind == Misfit)
}
