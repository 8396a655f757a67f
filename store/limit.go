package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Bounds of limits, and of how runs use them.
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

// LimitID is the number of a limit in one store, from 1 to MaxLimitID. A limit keeps its
// number and its row forever.
type LimitID = int32

// LimitKind says what a limit bounds. The numbers are stored.
type LimitKind int16

// The kinds.
const (
	// LimitSemaphore lets runs that are executing hold at most Max places. With a Max of 1
	// it is a mutex.
	LimitSemaphore LimitKind = 1
	// LimitFixedWindow admits Max in each Period, counted from the epoch. Where two windows
	// meet, up to twice Max may be admitted within one Period.
	LimitFixedWindow LimitKind = 2
	// LimitSlidingWindow admits Max in any time span as long as Period. Up to a Max of 64 it
	// is exact. Above that it divides the period into Buckets, and counts each bucket in full
	// as long as it overlaps the window, so it admits slightly less.
	LimitSlidingWindow LimitKind = 3
	// LimitTokenBucket admits Max in each Period, evenly spread, and up to Burst together
	// after a pause.
	LimitTokenBucket LimitKind = 4
	// LimitDynamicWindow admits Max in any time span as long as Period, over all keys, and
	// divides them evenly among the keys that are in use: each gets from Least to Most. If
	// Buckets is 1, the windows are fixed.
	LimitDynamicWindow LimitKind = 5
)

// LimitAction says what happens to a due run that a limit does not admit. The numbers are
// stored.
type LimitAction int16

// The actions. They apply to runs for which a limit has no room left. While a limit is
// draining, has a Max of 0 or is penalized, runs wait.
const (
	FullDefault      LimitAction = 0 // the limit's own action; for a limit: FullWait
	FullWait         LimitAction = 1 // the run waits in line
	FullRetry        LimitAction = 2 // the run is due again after RetryAfter, without spending an attempt
	FullDrop         LimitAction = 3 // the run is cancelled
	FullFail         LimitAction = 4 // the run is dead
	FullCancelOldest LimitAction = 5 // the run waits, and the one that has been executing for the longest time is cancelled
)

// LimitState says whether a limit applies. The numbers are stored.
type LimitState int16

// The states.
const (
	LimitActive   LimitState = 0
	LimitDraining LimitState = 1 // nothing more is admitted; what is executing may end
	LimitOff      LimitState = 2 // everything is admitted
	LimitRemoved  LimitState = 3 // like LimitOff, and the limit is no longer listed
)

// LimitUntil says what ends a permit. The letters are stored.
type LimitUntil byte

// What ends a permit. If a LimitUse does not say, it is UntilSettled.
const (
	UntilSettled  LimitUntil = 's' // the run stops running, even if it will be retried
	UntilFinished LimitUntil = 'f' // the run ends for good
	// UntilFinishedOrRevived is UntilFinished, but a dead run keeps its permit until an
	// operator deletes it, or retries it and it then succeeds or is cancelled.
	UntilFinishedOrRevived LimitUntil = 'k'
	UntilExpires           LimitUntil = 'x' // its owner gives it back, or its time is over
)

// LimitMode says what a run does with the permit of a named owner. The numbers are stored.
type LimitMode int16

// The modes. Only LimitAcquireAndRelease has no owner.
const (
	LimitAcquireAndRelease LimitMode = 0 // the permit is the run's own
	LimitAcquire           LimitMode = 1 // the run takes a permit for the owner, or extends the one that the owner has
	LimitRelease           LimitMode = 2 // the run is not limited; if it succeeds, it gives back the owner's permit
)

// Limit is a rule that bounds how many runs execute concurrently, or how many start in a
// period. It applies to each key separately. Any number of jobs, on any queues, may use the
// same limit.
type Limit struct {
	ID         LimitID       // given by the store; zero: not stored yet
	Name       string        // see LimitName for how names compare
	Kind       LimitKind     // a limit never changes its kind
	Max        int           // 1 to MaxLimit; an operator may set 0: nothing starts
	Period     time.Duration // of the windows and the bucket; MinLimitPeriod to MaxLimitPeriod
	Burst      int           // of the bucket: 1 to MaxLimit
	Buckets    int           // of the sliding and the dynamic window: 1 to MaxLimitBuckets
	Least      int           // of the dynamic window: 1 to Most
	Most       int           // of the dynamic window: Least to Max
	WhenFull   LimitAction   // for runs that do not set their own
	RetryAfter time.Duration // for FullRetry: MinLimitRetry to MaxDelay
	State      LimitState    // set by operators; not part of what the code declares
	// Secret keeps who chooses keys from computing which of them share a gate. A store makes
	// one for a new limit that brings none. Zero, as read: the limit is older than secrets.
	Secret uuid.UUID
	// Fault says why this program cannot apply the limit as it is stored, such as a kind that
	// only a newer program knows. The limit then admits nothing, unless it is off. Stores set
	// it when they read a limit, and do not store it.
	Fault string
}

// LimitUse is how a run uses one of its limits.
type LimitUse struct {
	Limit      string        // the limit's name
	Key        string        // what it applies to; empty: one key for all
	Weight     int           // how many places or starts it takes; zero: 1
	Until      LimitUntil    // zero: UntilSettled; UntilExpires if there is an Owner, and only then
	WhenFull   LimitAction   // FullDefault: the limit's
	RetryAfter time.Duration // for FullRetry; zero: the limit's
	Mode       LimitMode     // other than LimitAcquireAndRelease if there is an Owner, and only then
	Owner      string        // the named owner of the permit; empty: the run itself
	OwnedFor   time.Duration // for LimitAcquire: how long the owner's permit lasts before it expires
}

// The prefixes of the names of limits that cap a job or a queue. No other limit may have
// such a name.
const (
	jobCap   = "job:"
	queueCap = "queue:"
)

// JobCap is the name of the limit that caps how many runs of a job execute.
func JobCap(job string) string { return jobCap + job }

// QueueCap is the name of the limit that caps how many runs of a queue execute. Once
// ChangeLimit has set it, it applies to every run of the queue, including those that are
// pending already and do not name it, until it is turned off or deleted.
func QueueCap(queue string) string { return queueCap + queue }

// CappedQueue returns the queue that a limit of this name caps.
func CappedQueue(limit string) (queue string, is bool) { return strings.CutPrefix(limit, queueCap) }

// IsCap reports whether the name is that of a cap of a job or a queue.
func IsCap(name string) bool {
	return strings.HasPrefix(name, jobCap) || strings.HasPrefix(name, queueCap)
}

// LimitName returns the name under which a limit is stored: in lower case, so that "GitHub"
// and "github" are one limit. The name of a cap stays as it is, because the names of jobs and
// queues are case-sensitive.
func LimitName(name string) string {
	if IsCap(name) {
		return name
	}
	return strings.ToLower(name)
}

// LimitKey returns the key as it is compared and stored: in lower case.
func LimitKey(key string) string { return strings.ToLower(key) }

// Hash identifies what the code declares about the limit: everything but its number and its
// state. Limits whose names differ only in case have the same hash.
func (l *Limit) Hash() string {
	text := fmt.Sprintf("%s|%d|%d|%d|%d|%d|%d|%d|%d|%d", LimitName(l.Name), l.Kind, l.Max, l.Period.Microseconds(),
		l.Burst, l.Buckets, l.Least, l.Most, l.Action(), l.RetryAfter.Microseconds())
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// Rate reports whether the limit bounds how many runs start in a period. Such a limit has no
// permits.
func (l *Limit) Rate() bool { return l.Kind != LimitSemaphore }

// Capacity is the most that the limit ever has free. A larger weight counts as this much.
func (l *Limit) Capacity() int {
	if l.Kind == LimitTokenBucket && l.Max > 0 {
		return l.Burst
	}
	return max(l.Max, 0)
}

// Action is what happens to runs that do not set their own action.
func (l *Limit) Action() LimitAction {
	if l.WhenFull == FullDefault {
		return FullWait
	}
	return l.WhenFull
}

// Lasting says what ends the permit of this use.
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

// Places is the weight of this use, at least 1.
func (u *LimitUse) Places() int { return max(u.Weight, 1) }
