package admit

import (
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Ends reports whether a permit ends with a write that brings its run to a state.
// That of a named owner does not: see Expired and GivesBack.
func Ends(until store.LimitUntil, state store.State) bool {
	switch until {
	case store.UntilFinished:
		return state.Terminal()
	case store.UntilFinishedOrRevived:
		return state.Terminal() && state != store.Dead
	case store.UntilExpires:
		return false
	default:
		return state != store.Running
	}
}

// EndsWithDeletion reports whether a permit ends when its run is deleted or swept.
func EndsWithDeletion(until store.LimitUntil) bool { return until != store.UntilExpires }

// Expired reports whether the permit of a named owner is over. Only such a permit
// has an instant.
func Expired(expiresAt, now time.Time) bool {
	return !expiresAt.IsZero() && !expiresAt.After(now)
}

// GivesBack reports whether a run that comes to a state gives back the permit of
// its named owner.
func GivesBack(mode store.LimitMode, state store.State) bool {
	return mode == store.LimitRelease && state == store.Succeeded
}

// Announced reports whether a gate has to have a turn in whose line a run of such a weight
// is due: there may be room for it, or there will be without a release.
func Announced(l *store.Limit, used, weight int) bool {
	switch {
	case l == nil || l.State == store.LimitOff || l.State == store.LimitRemoved:
		return true
	case l.State == store.LimitDraining || l.Max == 0 || l.Fault != "":
		return false
	default:
		return l.Rate() || min(weight, l.Max) <= l.Max-used
	}
}
