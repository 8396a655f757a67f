package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Bounds of limits and of what runs say about them.
const (
	MaxLimitName    = 100         // bytes of a limit's name
	MaxLimitKey     = 255         // bytes of a key
	MaxRunLimits    = 8           // limits of one run
	MaxLimit        = 1_000_000   // Limit.Max, Limit.Burst, weights
	MaxLimitBuckets = 1_000       // buckets of a sliding window; each is at least a second long
	MaxLimitKeys    = 1_000       // live keys of a dynamic window
	MaxLimitID      = 1<<20 - 1   // the largest LimitID
	MinLimitPeriod  = time.Second // of a rate, and of a bucket
	MaxLimitPeriod  = 365 * 24 * time.Hour
	MinLimitRetry   = time.Second // of Limit.RetryAfter
)

// LimitID is the number of a limit in one store, from 1 to MaxLimitID. A limit
// keeps its number, and its row, for good.
type LimitID = int32

// LimitKind says what a limit bounds. The numbers are stored.
type LimitKind int16

// The kinds.
const (
	// LimitSemaphore bounds how many places are taken by runs that execute: at most
	// Max. With a Max of 1 it is a mutex.
	LimitSemaphore LimitKind = 1
	// LimitFixedWindow admits Max in each Period, counted from the epoch. At the edge
	// of two windows up to twice Max may be admitted within one Period.
	LimitFixedWindow LimitKind = 2
	// LimitSlidingWindow admits Max in any time as long as Period. It is exact where
	// Max is at most 64; above that it counts in Buckets parts of the period, each in
	// full while it overlaps the window, so that a little less is admitted.
	LimitSlidingWindow LimitKind = 3
	// LimitTokenBucket admits Max in each Period, evenly, and up to Burst together
	// after a pause.
	LimitTokenBucket LimitKind = 4
	// LimitDynamicWindow admits Max in any time as long as Period over all keys, and
	// shares them out evenly between the keys that are in use, from Least to Most
	// each. With one of Buckets the windows are fixed.
	LimitDynamicWindow LimitKind = 5
)

// LimitAction says what happens to a due run that a limit refuses. The numbers
// are stored.
type LimitAction int16

// The actions. They apply to runs beyond the free places of a limit that is full;
// while a limit is draining, has a Max of 0 or is penalized, runs wait.
const (
	FullDefault      LimitAction = 0 // the limit's action; of a limit: FullWait
	FullWait         LimitAction = 1 // it waits in line
	FullRetry        LimitAction = 2 // it is due again after RetryAfter; no attempt is spent
	FullDrop         LimitAction = 3 // it is cancelled
	FullFail         LimitAction = 4 // it is dead
	FullCancelOldest LimitAction = 5 // it waits, and the run that has been executing for the longest time is cancelled
)

// LimitState says whether a limit applies. The numbers are stored.
type LimitState int16

// The states.
const (
	LimitActive   LimitState = 0
	LimitDraining LimitState = 1 // nothing more is admitted; what executes may end
	LimitOff      LimitState = 2 // everything is admitted
	LimitRemoved  LimitState = 3 // as LimitOff; it is listed no more
)

// LimitUntil says what ends a permit. The letters are stored.
type LimitUntil byte

// What ends a permit. The zero value of a LimitUse is UntilSettled.
const (
	UntilSettled  LimitUntil = 's' // the run is no longer running: also when it is retried
	UntilFinished LimitUntil = 'f' // the run has ended for good
	// UntilFinishedOrRevived is UntilFinished, but a dead run keeps its permit until an
	// operator retries it to success, cancels or deletes it.
	UntilFinishedOrRevived LimitUntil = 'k'
	UntilExpires           LimitUntil = 'x' // its owner gives it back, or its time is over
)

// LimitMode says which part a run plays for the permit of a named owner. The
// numbers are stored.
type LimitMode int16

// The modes. Only LimitAcquireAndRelease goes without an owner.
const (
	LimitAcquireAndRelease LimitMode = 0 // the permit is the run's own
	LimitAcquire           LimitMode = 1 // the run takes a permit for the owner, unless the owner has it, which extends it
	LimitRelease           LimitMode = 2 // the run is not limited; its success gives back the owner's permit
)

// Limit is a rule that bounds how many runs execute concurrently, or how many
// start in a time. It applies to each key apart; the same limit may be that of
// any number of jobs, on any queues.
type Limit struct {
	ID         LimitID       // of the store; zero: not stored yet
	Name       string        // see LimitName for how names compare
	Kind       LimitKind     // a limit never changes its kind
	Max        int           // 1 to MaxLimit; 0 by an operator: nothing starts
	Period     time.Duration // of the windows and the bucket; MinLimitPeriod to MaxLimitPeriod
	Burst      int           // of the bucket: 1 to MaxLimit
	Buckets    int           // of the sliding and the dynamic window: 1 to MaxLimitBuckets
	Least      int           // of the dynamic window: 1 to Most
	Most       int           // of the dynamic window: Least to Max
	WhenFull   LimitAction   // for runs that say nothing else
	RetryAfter time.Duration // for FullRetry: MinLimitRetry to MaxDelay
	State      LimitState    // by operators; not part of what the code declares
}

// LimitUse is what a run says about one of its limits.
type LimitUse struct {
	Limit      string        // the limit's name
	Key        string        // what it applies to; empty: one key for all
	Weight     int           // places or starts it takes; zero: 1
	Until      LimitUntil    // zero: UntilSettled; UntilExpires with an Owner, and only then
	WhenFull   LimitAction   // FullDefault: the limit's
	RetryAfter time.Duration // for FullRetry; zero: the limit's
	Mode       LimitMode     // other than LimitAcquireAndRelease with an Owner, and only then
	Owner      string        // the named owner of the permit; empty: the run itself
	OwnedFor   time.Duration // for LimitAcquire: after so long the owner's permit expires
}

// The beginnings of the names of limits that cap a job or a queue. Only such
// limits have names that begin so.
const (
	jobCap   = "job:"
	queueCap = "queue:"
)

// JobCap is the name of the limit that caps how many runs of a job execute.
func JobCap(job string) string { return jobCap + job }

// QueueCap is the name of the limit that caps how many runs of a queue execute. Every run
// of the queue is under it from the moment ChangeLimit has set it, also one that is pending
// already and says nothing of it, until it is turned off or deleted.
func QueueCap(queue string) string { return queueCap + queue }

// CappedQueue is the queue whose cap a limit of this name is.
func CappedQueue(limit string) (queue string, is bool) { return strings.CutPrefix(limit, queueCap) }

// IsCap reports whether the name is that of a cap of a job or a queue.
func IsCap(name string) bool {
	return strings.HasPrefix(name, jobCap) || strings.HasPrefix(name, queueCap)
}

// LimitName is the name under which a limit is stored: in lower case, so that
// "GitHub" and "github" are one limit. The name of a cap stays as it is, as
// jobs and queues differ by case.
func LimitName(name string) string {
	if IsCap(name) {
		return name
	}
	return strings.ToLower(name)
}

// LimitKey is the key as it is compared and stored: in lower case.
func LimitKey(key string) string { return strings.ToLower(key) }

// Hash identifies what the code declares about the limit: everything but its
// number and state. Two that differ only in the case of the name are alike.
func (l *Limit) Hash() string {
	text := fmt.Sprintf("%s|%d|%d|%d|%d|%d|%d|%d|%d|%d", LimitName(l.Name), l.Kind, l.Max, l.Period.Microseconds(),
		l.Burst, l.Buckets, l.Least, l.Most, l.Action(), l.RetryAfter.Microseconds())
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// Rate reports whether the limit bounds starts in a time, so that there are no
// permits.
func (l *Limit) Rate() bool { return l.Kind != LimitSemaphore }

// Capacity is the most that the limit ever has free: what a heavier weight counts
// as.
func (l *Limit) Capacity() int {
	if l.Kind == LimitTokenBucket && l.Max > 0 {
		return l.Burst
	}
	return max(l.Max, 0)
}

// Action is what happens to runs that say nothing else.
func (l *Limit) Action() LimitAction {
	if l.WhenFull == FullDefault {
		return FullWait
	}
	return l.WhenFull
}

// Lasting is what ends the permit of the use.
func (u *LimitUse) Lasting() LimitUntil {
	switch {
	case u.Mode == LimitAcquire:
		return UntilExpires
	case u.Until == 0:
		return UntilSettled
	default:
		return u.Until
	}
}

// Places is the weight of the use, at least 1.
func (u *LimitUse) Places() int { return max(u.Weight, 1) }
