package protocol

import (
	"math"
	"time"
)

// Begin decides how many handlers of a worker may execute, from how long a goroutine that
// can continue waits for a CPU.
//
// Go gives each goroutine that computes its turn after all others, 10 ms each: with a
// thousand of them every step of a heartbeat takes seconds, and leases end although nothing
// is wrong. So a few handlers begin immediately. More begin while the latency is low: then twice
// as many as are executing may execute, so that handlers that wait for I/O begin within a few
// rounds of the scheduler, however many they are. While it is moderate, a handler begins when
// another ends. While it is high, fewer may execute than do. Handlers that have begun are
// never stopped.
//
// Invariant: Floor handlers may always execute, so that each run that waits begins at some
// time, or is handed back.
type Begin struct {
	Lease time.Duration // duration of the worker's leases
	Floor int           // handlers that may execute whatever the latency is

	raised    int           // handlers that may execute, if more than Floor
	executing int           // handlers that have begun, and have neither ended nor been given up
	ended     bool          // one of them has since the last sample
	short     time.Duration // until then the worker is short of CPU
	shortFrom time.Duration // since then it is
	logged    bool
	loggedAt  time.Duration
}

const (
	// beginLow is the part of the lease below which the latency is low, though at least
	// beginLeast, and beginHigh times that is where it is high. A heartbeat takes several
	// steps.
	beginLow   = 100
	beginLeast = 20 * time.Millisecond
	beginHigh  = 5
	// beginWait is the part of the lease after which a run that has not begun is handed back.
	beginWait = 4
	// beginTell is the part of the lease for which the worker is short of CPU before it says
	// so, and beginAgain is the least time between two such messages.
	beginTell  = 30
	beginAgain = time.Minute
)

// BeginSample is how long a goroutine that could continue waited for a CPU.
type BeginSample struct {
	At      time.Duration
	Latency time.Duration
	Waiting int // runs that are claimed and have not begun
}

// BeginEffects is what the worker has to do.
type BeginEffects struct {
	HandBack time.Duration // hand back the runs that were claimed before this instant and have not begun
	Tell     bool          // tell people that the worker is short of CPU
}

// Open reports whether one more handler may begin.
func (b *Begin) Open() bool { return b.executing < b.limit() }

// Executing is how many handlers have begun, and have neither ended nor been given up.
func (b *Begin) Executing() int { return b.executing }

// Began records that a handler begins.
func (b *Begin) Began() { b.executing++ }

// Ended records that a handler has ended, or was given up.
func (b *Begin) Ended() {
	b.executing--
	b.ended = true
}

// Room returns how many runs may be claimed while so many wait to begin: while the worker is
// short of CPU, no more than can begin.
func (b *Begin) Room(at time.Duration, waiting int) int {
	if !b.Short(at) {
		return math.MaxInt
	}
	return max(b.limit()-b.executing-waiting, 0)
}

// Short reports whether the worker is short of CPU: within the last lease a goroutine had to
// wait.
func (b *Begin) Short(at time.Duration) bool { return at < b.short }

// Sampled takes a sample into account.
func (b *Begin) Sampled(s BeginSample) (effects BeginEffects) {
	low := max(b.Lease/beginLow, beginLeast)
	late := s.Latency >= low
	switch {
	case !late:
		b.raised = 2 * b.executing
	case s.Latency >= beginHigh*low:
		b.raised = min(b.limit(), b.executing) * 3 / 4
	case b.executing >= b.limit() && !b.ended: // they take long, and perhaps it is not they who compute
		b.raised = b.executing + 1
	default:
		b.raised = min(b.limit(), b.executing)
	}
	b.ended = false
	if late {
		if s.At >= b.short {
			b.shortFrom = s.At
		}
		b.short = s.At + b.Lease
		suffers := s.Waiting > 0 || b.executing > 0 && s.Latency >= beginHigh*low
		if suffers && s.At-b.shortFrom >= b.Lease/beginTell && (!b.logged || s.At-b.loggedAt >= beginAgain) {
			b.logged, b.loggedAt, effects.Tell = true, s.At, true
		}
	}
	effects.HandBack = s.At - b.Lease/beginWait
	return effects
}

func (b *Begin) limit() int { return max(b.raised, b.Floor) }
