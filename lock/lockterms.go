package lock

import (
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// Policy says what happens to a lock while its store is unreachable. Under every policy the
// lock uses the store again when it is back.
type Policy int8

// The policies.
const (
	// Skip does not run: the answer is an ErrHeld that is an ErrUnavailable
	// too. Calls that wait continue to wait.
	Skip Policy = iota
	// RunLocal grants up to the cap within this process, with fence 0, which
	// every resource that checks fences refuses. Across processes
	// the cap does not hold.
	RunLocal
	// Fail returns ErrUnavailable immediately.
	Fail
)

// String is the policy's name.
func (p Policy) String() string {
	switch p {
	case Skip:
		return "skip"
	case RunLocal:
		return "run local"
	case Fail:
		return "fail"
	default:
		return fmt.Sprintf("Policy(%d)", int8(p))
	}
}

// MaxRecheck bounds Terms.Recheck.
const MaxRecheck = time.Second

// Terms are the terms of a request for a lock.
type Terms struct {
	// Terms are the life of the grant and of its renewals. The default of the
	// duration is 30 s.
	lease.Terms
	// Slots is the cap: how many may hold the name at the same time. Default 1. It
	// may be raised and lowered from one request to the next.
	Slots int
	// Wait is how long Acquire waits for a slot: 0 not at all, negative for as
	// long as its context lives.
	Wait time.Duration
	// Timeout bounds the function that lock.Guard runs; 0: no bound. It must be
	// below Duration, so that one grant covers a run even when no renewal
	// succeeds.
	Timeout time.Duration
	// Longest is how long the lock is expected to be held at most; a holder
	// that is 1.5 times as old is warned about. Default Timeout; 0: never.
	Longest time.Duration
	// Recheck is how long an answer that every slot is taken is remembered,
	// so that a timer of a few seconds on many machines asks less. At most
	// 1 s; 0: not at all. A grant is never remembered.
	Recheck time.Duration
	// Policy says what happens when the store is unreachable. Default Skip.
	Policy Policy
}

// WithDefaults returns the terms with zero fields replaced by their defaults.
func (t Terms) WithDefaults() Terms {
	t.Terms = t.Terms.WithDefaults()
	if t.Slots == 0 {
		t.Slots = 1
	}
	if t.Longest == 0 {
		t.Longest = t.Timeout
	}
	return t
}

// Validate reports every constraint between the fields that is violated.
func (t Terms) Validate() error {
	faults := []error{t.Terms.Validate()}
	wrong := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if t.Slots < 1 || t.Slots > MaxSlots {
		wrong("%d slots: want 1 to %d", t.Slots, MaxSlots)
	}
	if t.Timeout < 0 || t.Timeout > 0 && t.Timeout >= t.Duration {
		wrong("timeout %v: want less than the lease duration %v", t.Timeout, t.Duration)
	}
	if t.Longest < 0 {
		wrong("longest hold %v is negative", t.Longest)
	}
	if t.Recheck < 0 || t.Recheck > MaxRecheck {
		wrong("recheck %v: want 0 to %v", t.Recheck, MaxRecheck)
	}
	if t.Policy < Skip || t.Policy > Fail {
		wrong("unknown policy %d", int8(t.Policy))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("%w: lock terms: %w", ErrInvalid, err)
	}
	return nil
}
