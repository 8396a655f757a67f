package lock

import (
	"time"
)

// Hooks are called when a Locker does something, by the goroutines that use the
// Locker. They must not block. A hook that is nil is not called. More hooks may
// come: name the fields when you write Hooks.
type Hooks struct {
	// Decided is called when a call of Acquire or TryAcquire has ended.
	Decided func(Decision)
	// Ended is called when a grant was released or lost, or is overdue.
	Ended func(End)
	// Called is called after each call of the store.
	Called func(Call)
	// Degraded is called with time during which the store could not be asked.
	Degraded func(Degradation)
}

// JoinHooks returns hooks that call a's and then b's.
func JoinHooks(a, b Hooks) Hooks {
	return Hooks{Decided: both(a.Decided, b.Decided), Ended: both(a.Ended, b.Ended), Called: both(a.Called, b.Called), Degraded: both(a.Degraded, b.Degraded)}
}

func both[E any](a, b func(E)) func(E) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return func(event E) {
			defer b(event) // also when a panics
			a(event)
		}
	}
}

// report calls a hook, if there is one.
func report[E any](hook func(E), event E) {
	if hook != nil {
		hook(event)
	}
}

// Decision is how a call of Acquire or TryAcquire ended.
type Decision struct {
	Name    string
	Err     error // nil: granted
	Slot    int
	Local   bool          // granted without the store
	Expired bool          // the slot was taken over from a holder that let it expire
	Waited  time.Duration // the whole call
	Waiting int           // calls of this process that wait for the name now
}

// End reports that a grant has ended, or that it is overdue.
type End struct {
	Name    string
	Held    time.Duration
	Lost    bool // the store no longer had it
	Overdue bool // held for 1.5 times as long as expected, and held on
}

// Call is one call to the store.
type Call struct {
	Verb string // acquire, renew, release, probe
	Took time.Duration
	Err  error
}

// Degradation is time during which the store was unreachable. Each failed call reports
// the time since the last one; the rest is reported when the store is back.
type Degradation struct {
	Passed time.Duration
}
