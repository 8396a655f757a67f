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
// another ends. While it is high, fewer may execute than do. While a heartbeat can hardly
// arrive in time, because the process shares its CPU with others that compute, that goes down to
// one handler at a time. Handlers that have begun are never stopped.
//
// A handler that was given up, because its lease was lost, may continue to compute. While
// goroutines wait for a CPU it counts as one that executes: if another took its place, each lease
// that is lost would slow down the heartbeats of the next one.
//
// Invariant: Floor handlers may execute unless the latency is severe, and one always may, so
// that each run that waits begins at some time, or is handed back.
type Begin struct {
	Lease time.Duration // duration of the worker's leases
	Floor int           // handlers that may execute unless the latency is severe

	raised    int           // handlers that may execute, if more than the floor
	executing int           // handlers that have begun, and have neither ended nor been given up
	givenUp   int           // handlers that were given up and have not returned
	ended     bool          // a handler has ended since the last sample, or was given up
	late      bool          // by the last sample the latency is not low
	severe    bool          // it was severe, and has not been low since
	short     time.Duration // until then the worker is short of CPU
	shortFrom time.Duration // since then it is
	logged    bool
	loggedAt  time.Duration
}

const (
	// beginLow is the part of the lease below which the latency is low, though at least
	// beginLeast, and beginHigh times that is where it is high. A heartbeat takes several
	// steps: where each takes beginSevere times that, most of a lease passes until it is answered.
	beginLow    = 100
	beginLeast  = 20 * time.Millisecond
	beginHigh   = 5
	beginSevere = 10
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
func (b *Begin) Open() bool { return b.executing == 0 || b.busy() < b.limit() }

// Executing is how many handlers have begun, and have neither ended nor been given up.
func (b *Begin) Executing() int { return b.executing }

// Began records that a handler begins.
func (b *Begin) Began() { b.executing++ }

// Ended records that a handler has ended, which was not given up.
func (b *Begin) Ended() {
	b.executing--
	b.ended = true
}

// GivenUp records that a handler was given up. It may continue to compute.
func (b *Begin) GivenUp() {
	b.Ended()
	b.givenUp++
}

// Returned records that a handler that was given up has ended.
func (b *Begin) Returned() { b.givenUp-- }

// busy is how many handlers may need the CPU.
func (b *Begin) busy() int {
	if b.late {
		return b.executing + b.givenUp
	}
	return b.executing
}

// Room returns how many runs may be claimed while so many wait to begin: while the worker is
// short of CPU, no more than can begin.
func (b *Begin) Room(at time.Duration, waiting int) int {
	if !b.Short(at) {
		return math.MaxInt
	}
	if b.executing+waiting == 0 {
		return max(b.limit()-b.busy(), 1)
	}
	return max(b.limit()-b.busy()-waiting, 0)
}

// Short reports whether the worker is short of CPU: within the last lease a goroutine had to
// wait.
func (b *Begin) Short(at time.Duration) bool { return at < b.short }

// Sampled takes a sample into account.
func (b *Begin) Sampled(s BeginSample) (effects BeginEffects) {
	low := max(b.Lease/beginLow, beginLeast)
	b.late = s.Latency >= low
	b.severe = b.late && (b.severe || s.Latency >= beginSevere*low)
	switch {
	case !b.late:
		b.raised = 2 * b.executing
	case s.Latency >= beginHigh*low:
		b.raised = min(b.limit(), b.busy()) * 3 / 4
	case b.busy() >= b.limit() && !b.ended: // they take long, and perhaps it is not they who compute
		b.raised = b.busy() + 1
	default:
		b.raised = min(b.limit(), b.busy())
	}
	b.ended = false
	if b.late {
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

// limit is how many handlers may execute.
func (b *Begin) limit() int {
	if b.severe {
		return max(b.raised, 1)
	}
	return max(b.raised, b.Floor)
}
