package rules

import (
	"strconv"

	"github.com/durable-worker/durable-worker/store"
)

// Isolation is the crash from which on a run waits in its lane's line of isolated
// runs and is claimed alone.
const Isolation = 2

// Isolated reports whether a run that has crashed so many workers is claimed alone.
func Isolated(crashes int) bool { return crashes >= Isolation }

// Crashes is the crash count of a run after one more crash.
func Crashes(before int) int { return min(before+1, store.MostCrashes) }

// Crashed is a running run whose lease has expired.
type Crashed struct {
	Policy       store.CrashPolicy
	Crashes      int     // this one included
	Most         int     // store.ReclaimRequest.MaxCrashes
	Alone        bool    // it was claimed alone
	CancelReason *string // why it was asked to be cancelled; nil: it was not
}

// Crash is what a crash makes of a run: Pending again, or an end and its reason.
// The crash policy and the count are stronger than a request to cancel the run.
func Crash(c Crashed) (state store.State, reason string) {
	switch {
	case c.Policy != store.CrashRetry: // also one that only a newer program knows
		return store.Dead, CrashedDead
	case c.Alone && c.Crashes >= c.Most:
		return store.Dead, fill(CrashedAlone, strconv.Itoa(c.Crashes))
	default:
		return Released(c.CancelReason)
	}
}

// CrashError is the error of the attempt that a crash interrupted.
func CrashError(worker string, crashes int) string {
	return fill(LeaseExpired, worker, strconv.Itoa(crashes))
}

// Released is what happens to a run that could be Pending again: it is, unless it
// was asked to be cancelled.
func Released(cancelReason *string) (state store.State, reason string) {
	if cancelReason != nil {
		return store.Cancelled, *cancelReason
	}
	return store.Pending, ""
}
