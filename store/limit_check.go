package store

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durable-worker/durable-worker/internal/storable"
)

// CheckLimit reports everything that is wrong with a limit that code declares, wrapped in
// ErrInvalid. For a limit that an operator sets, whose Max may be 0, use CheckLimitChange.
func CheckLimit(l Limit) error {
	faults := l.faults()
	if l.Max == 0 {
		faults = append(faults, fmt.Errorf("max 0: want 1 to %d", MaxLimit))
	}
	return l.refused(faults)
}

// CheckLimitChange reports everything that is wrong with a limit that an operator sets,
// wrapped in ErrInvalid.
func CheckLimitChange(l Limit) error { return l.refused(l.faults()) }

// AsRead returns the limit with its Fault, as stores have read the rest.
func (l Limit) AsRead() Limit {
	l.Fault = ""
	if faults := l.faults(); len(faults) > 0 {
		l.Fault = errors.Join(faults...).Error()
	}
	return l
}

func (l *Limit) refused(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: limit %q: %w", ErrInvalid, storable.Clip(l.Name, 150), errors.Join(faults...))
}

func (l *Limit) faults() (faults []error) {
	refuse := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if err := CheckLimitName(l.Name); err != nil {
		faults = append(faults, err)
	}
	if l.Kind < LimitSemaphore || l.Kind > LimitDynamicWindow {
		refuse("%v is unknown", l.Kind)
	}
	if l.Max < 0 || l.Max > MaxLimit {
		refuse("max %d: want 1 to %d, or 0 by an operator", l.Max, MaxLimit)
	}
	if l.WhenFull < FullDefault || l.WhenFull > FullCancelOldest {
		refuse("%v is unknown", l.WhenFull)
	}
	if err := checkRetryAfter(l.WhenFull, l.RetryAfter); err != nil {
		faults = append(faults, err)
	}
	if l.WhenFull == FullRetry && l.RetryAfter == 0 {
		refuse("want a time to retry after")
	}
	if l.WhenFull == FullCancelOldest && l.Kind != LimitSemaphore {
		refuse("%v needs a semaphore: a %v does not know which runs are executing", l.WhenFull, l.Kind)
	}
	if IsCap(l.Name) && l.Kind != LimitSemaphore {
		refuse("a cap of a job or a queue is a semaphore, not a %v", l.Kind)
	}
	if l.State < LimitActive || l.State > LimitRemoved {
		refuse("%v is unknown", l.State)
	}
	return append(append(faults, l.timeFaults()...), l.shareFaults()...)
}

// maxFill bounds how long a bucket takes to fill, so that instants can be counted
// in nanoseconds.
const maxFill = 10 * MaxLimitPeriod

// timeFaults checks the period and what divides it.
func (l *Limit) timeFaults() (faults []error) {
	refuse := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch {
	case l.Rate() && (l.Period < MinLimitPeriod || l.Period > MaxLimitPeriod):
		refuse("period %v: want %v to %v", l.Period, MinLimitPeriod, MaxLimitPeriod)
	case !l.Rate() && l.Period != 0:
		refuse("a semaphore has no period")
	}
	if l.Period%time.Microsecond != 0 {
		refuse("period %v: want whole microseconds", l.Period)
	}
	bucketed := l.Kind == LimitSlidingWindow || l.Kind == LimitDynamicWindow
	switch {
	case !bucketed && l.Buckets != 0:
		refuse("a %v has no buckets", l.Kind)
	case bucketed && (l.Buckets < 1 || l.Buckets > MaxLimitBuckets):
		refuse("%d buckets: want 1 to %d", l.Buckets, MaxLimitBuckets)
	case bucketed && l.Period/time.Duration(l.Buckets) < MinLimitPeriod:
		refuse("%d buckets in %v: each has to be %v or longer", l.Buckets, l.Period, MinLimitPeriod)
	}
	token := l.Kind == LimitTokenBucket
	switch {
	case !token && l.Burst != 0:
		refuse("a %v has no burst", l.Kind)
	case token && (l.Burst < 1 || l.Burst > MaxLimit):
		refuse("burst %d: want 1 to %d", l.Burst, MaxLimit)
	case token && l.Max > 0 && float64(l.Period)/float64(l.Max)*float64(l.Burst) > float64(maxFill):
		refuse("burst %d: filling it would take more than %v", l.Burst, maxFill)
	}
	return faults
}

// shareFaults checks the bounds of a key's share.
func (l *Limit) shareFaults() (faults []error) {
	refuse := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch {
	case l.Kind != LimitDynamicWindow && (l.Least != 0 || l.Most != 0):
		refuse("a %v has no shares per key", l.Kind)
	case l.Kind == LimitDynamicWindow && (l.Least < 1 || l.Most < l.Least || l.Most > MaxLimit):
		refuse("%d to %d for each key: want at least 1, and the smaller number first", l.Least, l.Most)
	case l.Kind == LimitDynamicWindow && l.Max > 0 && l.Most > l.Max:
		refuse("most %d for each key: want at most the max, %d", l.Most, l.Max)
	}
	return faults
}

// CheckLimitName reports what is wrong with the name of a limit.
func CheckLimitName(name string) error {
	longest := MaxLimitName
	if IsCap(name) { // as long as the job's or the queue's name may be
		longest = len(queueCap) + MaxNameLength
	}
	switch {
	case len(name) > longest:
		return fmt.Errorf("limit name %q: want at most %d bytes", storable.Clip(name, 150), longest)
	case !IsCap(name) && IsCap(strings.ToLower(name)):
		return fmt.Errorf("limit name %q: names that begin with %q or %q are reserved for caps", name, jobCap, queueCap)
	case IsCap(name):
		_, of, _ := strings.Cut(name, ":")
		return CheckName("limit", of)
	default:
		return CheckName("limit", name)
	}
}

// CheckLimitKey reports what is wrong with a key.
func CheckLimitKey(key string) error {
	if len(key) > MaxLimitKey || len(LimitKey(key)) > MaxLimitKey || !utf8.ValidString(key) || storable.HasControl(key) {
		return fmt.Errorf("key %q: want at most %d bytes of text without control characters", storable.Clip(key, 300), MaxLimitKey)
	}
	return nil
}

// CheckLimitUses reports what is wrong with how one run uses its limits, as far as that
// does not depend on the limits themselves: for the rest see Limit.CheckUse.
func CheckLimitUses(uses []LimitUse) error {
	var faults []error
	if len(uses) > MaxRunLimits {
		faults = append(faults, fmt.Errorf("%d limits: want at most %d", len(uses), MaxRunLimits))
	}
	for i := range uses {
		if err := uses[i].check(); err != nil {
			faults = append(faults, fmt.Errorf("limit %q: %w", storable.Clip(uses[i].Limit, 150), err))
		}
		for j := range uses[:i] {
			if LimitName(uses[i].Limit) == LimitName(uses[j].Limit) && LimitKey(uses[i].Key) == LimitKey(uses[j].Key) {
				faults = append(faults, fmt.Errorf("limit %q with key %q is given twice", storable.Clip(uses[i].Limit, 150), storable.Clip(uses[i].Key, 300)))
			}
		}
	}
	return errors.Join(faults...)
}

func (u *LimitUse) check() error {
	var faults []error
	refuse := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if err := CheckLimitName(u.Limit); err != nil {
		faults = append(faults, err)
	}
	if err := CheckLimitKey(u.Key); err != nil {
		faults = append(faults, err)
	}
	if u.Weight < 0 || u.Weight > MaxLimit {
		refuse("weight %d: want 1 to %d", u.Weight, MaxLimit)
	}
	if u.WhenFull < FullDefault || u.WhenFull > FullCancelOldest {
		refuse("%v is unknown", u.WhenFull)
	}
	if err := checkRetryAfter(u.WhenFull, u.RetryAfter); err != nil {
		faults = append(faults, err)
	}
	if err := u.checkOwner(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func (u *LimitUse) checkOwner() error {
	owned := u.Mode != LimitAcquireAndRelease
	switch {
	case u.Mode < LimitAcquireAndRelease || u.Mode > LimitRelease:
		return fmt.Errorf("%v is unknown", u.Mode)
	case owned != (u.Owner != ""):
		return fmt.Errorf("owner %q and mode %v: an owner goes with the modes acquire and release", storable.Clip(u.Owner, 150), u.Mode)
	case len(u.Owner) > MaxLimitKey || !utf8.ValidString(u.Owner) || storable.HasControl(u.Owner):
		return fmt.Errorf("owner %q: want at most %d bytes of text without control characters", storable.Clip(u.Owner, 300), MaxLimitKey)
	case u.Mode == LimitAcquire && (u.OwnedFor < time.Second || u.OwnedFor > MaxDelay):
		return fmt.Errorf("owned for %v: want 1s to %v", u.OwnedFor, MaxDelay)
	case u.Mode != LimitAcquire && u.OwnedFor != 0:
		return fmt.Errorf("owned for %v: goes with the mode acquire", u.OwnedFor)
	case u.Mode == LimitAcquire && u.Until != 0 && u.Until != UntilExpires, u.Mode == LimitRelease && u.Until != 0:
		return fmt.Errorf("until %v: the permit of a named owner ends when it expires or is given back", u.Until)
	case !owned && u.Until != 0 && u.Until != UntilSettled && u.Until != UntilFinished && u.Until != UntilFinishedOrRevived:
		return fmt.Errorf("until %v: want settled, finished or finished-or-revived", u.Until)
	default:
		return nil
	}
}

// CheckUse reports why a run cannot use the limit in this way.
func (l *Limit) CheckUse(u *LimitUse) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("limit %q: %w", l.Name, fmt.Errorf(format, args...))
	}
	most := l.Capacity()
	if l.Kind == LimitDynamicWindow {
		most = min(most, l.Most)
	}
	switch {
	case most > 0 && u.Places() > most: // with a max of 0 nothing starts until it is raised
		return refuse("weight %d: want at most %d, its capacity", u.Places(), most)
	case l.Kind == LimitDynamicWindow && u.Key == "":
		return refuse("a dynamic window divides its starts among keys: want a key")
	case l.Rate() && (u.Lasting() != UntilSettled || u.Mode != LimitAcquireAndRelease):
		return refuse("a %v has no permits: want no until and no owner", l.Kind)
	case u.WhenFull == FullCancelOldest && l.Kind != LimitSemaphore:
		return refuse("%v needs a semaphore: a %v does not know which runs are executing", u.WhenFull, l.Kind)
	case u.WhenFull == FullRetry && u.RetryAfter == 0 && l.RetryAfter == 0:
		return refuse("want a time to retry after")
	default:
		return nil
	}
}

func checkRetryAfter(action LimitAction, after time.Duration) error {
	switch {
	case after == 0:
		return nil
	case action != FullRetry && action != FullDefault:
		return fmt.Errorf("retry after %v does not go with %v", after, action)
	case after < MinLimitRetry || after > MaxDelay:
		return fmt.Errorf("retry after %v: want %v to %v", after, MinLimitRetry, MaxDelay)
	default:
		return nil
	}
}
