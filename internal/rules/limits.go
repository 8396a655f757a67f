package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// KindLimit is the kind of limits in the audit log.
const KindLimit = "limit"

// OldestOf is why a run is cancelled that has been executing for the longest time
// with a permit of a limit that is full. %s is the limit's name.
const OldestOf = "limit %s was full, and of its runs this one had been executing for the longest time"

// Oldest is OldestOf for one limit.
func Oldest(limit string) string { return fill(OldestOf, limit) }

// UnknownLimit refuses a limit that is not in the store.
func UnknownLimit(name string) error {
	return fmt.Errorf("%w: %q: no worker has declared it, and no operator has set it; start a worker that registers a job with it "+
		"before the programs that enqueue, or create it with \"limits set\"", store.ErrUnknownLimit, name)
}

// KnownLimit reports whether runs may be enqueued with a limit: also with one that
// an operator has deleted, while code declares it. It admits everything then.
func KnownLimit(state store.LimitState, declared bool) bool {
	return state != store.LimitRemoved || declared
}

// SecretOf is the secret of a new limit.
func SecretOf(limit *store.Limit) uuid.UUID {
	if limit.Secret != (uuid.UUID{}) {
		return limit.Secret
	}
	return uuid.New()
}

// DeclareLimit is what a declaration makes of a limit that is stored: nil, if
// nothing; an error, if the declared one is of another kind.
func DeclareLimit(declared store.Limit, known *store.Limit) (*store.Limit, error) {
	if known.Kind != declared.Kind {
		return nil, KindStays(known)
	}
	made := declared
	made.ID, made.Name, made.State, made.Secret = known.ID, known.Name, known.State, known.Secret
	if made.State == store.LimitRemoved {
		made.State = store.LimitActive
	}
	return &made, nil
}

// KindStays refuses another kind for a limit.
func KindStays(known *store.Limit) error {
	return fmt.Errorf("%w: limit %q is a %v, and a limit keeps its kind: give the new one another name", store.ErrConflict, known.Name, known.Kind)
}

// ChangedLimit is what a command makes of a limit that is stored. It reports
// whether anything changes. The store checks before that what is to be deleted is
// not in use.
func ChangedLimit(change *store.LimitChange, known store.Limit) (store.Limit, bool, error) {
	made := known
	switch change.Command {
	case store.SetLimit:
		if known.Kind != change.Limit.Kind {
			return known, false, KindStays(&known)
		}
		made = change.Limit
		made.ID, made.Name, made.State, made.Secret = known.ID, known.Name, known.State, known.Secret
		_, caps := store.CappedQueue(known.Name) // one that was lifted is set again
		if made.State == store.LimitRemoved || caps && made.State == store.LimitOff {
			made.State = store.LimitActive
		}
	case store.DrainLimit:
		made.State = store.LimitDraining
	case store.ResumeLimit:
		made.State = store.LimitActive
	case store.DisableLimit:
		made.State = store.LimitOff
	case store.DeleteLimit:
		made.State = store.LimitRemoved
	}
	return made, made != known, nil
}

// LimitInUse refuses to delete a limit.
func LimitInUse(name string, waiting, held int64) error {
	return fmt.Errorf("%w: limit %q is in use: %d runs wait for it and %d places are held; turn it off, and delete it when those runs have ended",
		store.ErrConflict, name, waiting, held)
}

// CheckLimitCommand reports what is wrong with a change of a limit, wrapped in
// store.ErrInvalid.
func CheckLimitCommand(change *store.LimitChange) error {
	var faults []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	faults = append(faults, store.CheckLimitName(change.Limit.Name))
	refuse(change.By == "", "the actor is missing")
	switch change.Command {
	case store.SetLimit:
		faults = append(faults, store.CheckLimitChange(change.Limit))
	case store.DrainLimit, store.ResumeLimit, store.DisableLimit, store.DeleteLimit:
	case store.ReleasePermit:
		faults = append(faults, store.CheckLimitKey(change.Key))
		refuse(change.Owner == (uuid.UUID{}), "the owner is missing")
	case store.LiftPenalty:
		faults = append(faults, store.CheckLimitKey(change.Key))
	default:
		refuse(true, "%q is not a change of a limit", change.Command)
	}
	return invalid(errors.Join(faults...))
}

// CheckLimitRequest reports what is wrong with a request of code outside of runs,
// wrapped in store.ErrInvalid, apart from what the limit is.
func CheckLimitRequest(request *store.LimitRequest) error {
	use := store.LimitUse{Limit: request.Limit, Key: request.Key, Weight: request.Weight}
	faults := []error{store.CheckLimitUses([]store.LimitUse{use})}
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	switch request.Usage {
	case store.UsageTake, store.UsageCharge:
		refuse(request.Owner != "" || request.For != 0, "an owner and a time go with places, not with starts")
	case store.UsageAcquire, store.UsageRenew:
		refuse(request.Owner == "", "the owner is missing")
		refuse(request.For < time.Second || request.For > store.MaxDelay, "for %v: want 1s to %v", request.For, store.MaxDelay)
	case store.UsageGive:
		refuse(request.Owner == "", "the owner is missing")
	case store.UsagePenalize:
		refuse(request.Owner != "" || request.Weight != 0, "an owner and a weight do not go with a penalty")
		refuse(request.For < time.Millisecond || request.For > store.MaxDelay, "a penalty of %v: want 1ms to %v", request.For, store.MaxDelay)
	default:
		refuse(true, "%q is not a use of a limit", request.Usage)
	}
	return invalid(errors.Join(faults...))
}

// CheckUsage reports whether code outside of runs may use a limit so.
func CheckUsage(request *store.LimitRequest, limit *store.Limit) error {
	if request.Usage == store.UsagePenalize {
		return nil // of every kind, also what all keys of a dynamic window share
	}
	if limit.Fault != "" {
		return fmt.Errorf("%w: limit %q cannot be applied: %s", store.ErrInvalid, limit.Name, limit.Fault)
	}
	starts := request.Usage == store.UsageTake || request.Usage == store.UsageCharge
	if starts != limit.Rate() {
		return fmt.Errorf("%w: limit %q is a %v, which has no %s", store.ErrInvalid, limit.Name, limit.Kind, request.Usage)
	}
	use := store.LimitUse{Limit: request.Limit, Key: request.Key, Weight: request.Weight}
	if request.Usage == store.UsageCharge {
		use.Weight = 1 // what has happened has happened
	}
	return invalid(limit.CheckUse(&use))
}

// LimitDetail is what the audit log says of a change of a limit.
func LimitDetail(change *store.LimitChange, limit *store.Limit) json.RawMessage {
	detail := map[string]any{}
	switch change.Command {
	case store.SetLimit:
		detail["kind"], detail["max"] = limit.Kind.String(), limit.Max
		if limit.Period > 0 {
			detail["period"] = limit.Period.String()
		}
	case store.ReleasePermit:
		detail["key"], detail["owner"] = change.Key, change.Owner.String()
	case store.LiftPenalty:
		detail["key"] = change.Key
	default:
		return nil
	}
	text, err := json.Marshal(detail)
	if err != nil {
		return nil // texts and numbers always can be
	}
	return text
}

func invalid(err error) error {
	if err == nil || errors.Is(err, store.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrInvalid, err)
}

// AnyLimited reports whether one of the runs has limits.
func AnyLimited(runs []store.NewRun) bool {
	for i := range runs {
		if len(runs[i].Limits) > 0 {
			return true
		}
	}
	return false
}
