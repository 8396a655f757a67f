package rules

import (
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// CheckSettlements refuses outcomes that no execution has, wrapped in
// store.ErrInvalid.
func CheckSettlements(settlements []store.Settlement) error {
	for i := range settlements {
		for j := range settlements[i].Runs {
			settled := &settlements[i].Runs[j]
			if kind := settled.Outcome.Kind; !kind.Settled() {
				return fmt.Errorf("%w: run %s: %v cannot be settled", store.ErrInvalid, settled.ID, kind)
			}
		}
	}
	return nil
}

// Plain reports whether there is nothing to store of an outcome but that it is a
// success.
func Plain(outcome *store.Outcome) bool {
	return outcome.Kind == store.Success && outcome.Result == nil && outcome.Log == ""
}

// Recorded reports whether an outcome becomes a row of the run's attempts.
func Recorded(outcome *store.Outcome) bool {
	return outcome.Kind.Recorded() || outcome.Kind == store.Success && outcome.Log != ""
}

// Refund is how many attempts an outcome gives back.
func Refund(outcome *store.Outcome) int {
	if outcome.Kind.Refunded() {
		return 1
	}
	return 0
}

// DueAfter is how long after its settlement a run is due that waits again. What is
// handed back is due immediately.
func DueAfter(outcome *store.Outcome) time.Duration {
	if outcome.Kind == store.HandedBack {
		return 0
	}
	return max(outcome.After, 0)
}

// EndedAt is when an attempt has ended that is settled now: when its handler has
// returned, which follows from what it took.
func EndedAt(outcome *store.Outcome, startedAt, now time.Time) time.Time {
	if outcome.Took <= 0 {
		return now
	}
	if at := startedAt.Add(outcome.Took.Truncate(time.Microsecond)); at.Before(now) {
		return at
	}
	return now
}

// Settle is what an outcome makes of a run, and the reason when it ends without
// success. Where the run would be Pending again, it is cancelled if that was asked:
// cancelReason is why, or nil.
func Settle(outcome *store.Outcome, cancelReason *string) (state store.State, reason string) {
	switch state = outcome.Kind.State(); state {
	case store.Pending:
		return Released(cancelReason)
	case store.Succeeded:
		return state, ""
	default:
		return state, outcome.Error
	}
}

// AnyKeyed reports whether one of the runs has a key.
func AnyKeyed(runs []store.NewRun) bool {
	for i := range runs {
		if runs[i].Key.Text != "" {
			return true
		}
	}
	return false
}
