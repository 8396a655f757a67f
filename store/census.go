package store

import (
	"context"
	"fmt"
	"time"
)

// Census counts runs by what they have in common, to answer who floods a queue or a limit.
// Each answer reads a bounded number of rows and says how exact it is. It takes no locks.
type Census interface {
	// LimitKeys lists keys of a limit that runs wait for, that are in use, or that are
	// penalized: at most so many, those for which most runs wait first. It returns
	// ErrNotFound if there is no such limit.
	LimitKeys(ctx context.Context, limit string, most int) (LimitKeys, error)
}

// MaxKeysListed bounds the keys of a limit that are listed together.
const MaxKeysListed = 1000

// CheckKeysListed refuses a number of keys that LimitKeys does not list, with ErrInvalid.
func CheckKeysListed(most int) error {
	if most < 1 || most > MaxKeysListed {
		return fmt.Errorf("%w: %d keys: want 1 to %d", ErrInvalid, most, MaxKeysListed)
	}
	return nil
}

// LimitKeys is what is known about the keys of a limit.
type LimitKeys struct {
	Limit   Limit
	Keys    []KeyUse
	Known   Count // keys that runs wait for, that are in use, or that are penalized
	Partial bool  // more runs wait than were read: keys may be missing from the list
}

// KeyUse is one key of a limit: how much of it is in use, and what waits for it.
type KeyUse struct {
	Key       string     // as one of its runs spells it; empty: that of runs without a key
	Unnamed   bool       // the key is not empty, and no run that is left spells it
	InUse     int        // places that permits hold; a rate has none
	Waiting   Count      // a run that waits for several limits is counted in one line only
	OldestDue *time.Time // when the first of the waiting runs was due; nil: none waits
	NotBefore *time.Time // a penalty; nil: none
}
