package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// LineID names a line of turns. It is the number of a lane, the negative of that number for
// the lane's isolated runs, or a larger number for a limit's own line. A turn says that one
// key of a limit may have room for a run that waits.
type LineID = int32

// Admission is one part of a claim of limited runs: it takes up to Take turns of a line, the
// oldest first, and admits runs of the keys for which they say that there may be room.
type Admission struct {
	Line LineID
	Take int
}

// JobLimit is a limit that a job declares for all of its runs.
type JobLimit struct {
	Default  LimitUse `json:"use"`                // for runs that do not set their own; without a key
	Template string   `json:"template,omitempty"` // of the key, over the args; empty: one key for all, or Computed
	Computed bool     `json:"computed,omitempty"` // the job's code computes the key: to enqueue without that code, give the key
}

// MarshalText writes the use as String does.
func (u LimitUse) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads what MarshalText has written.
func (u *LimitUse) UnmarshalText(text []byte) (err error) {
	*u, err = ParseLimitUse(string(text))
	return err
}

// Limits holds what bounds the execution of runs.
type Limits interface {
	// ListLimits lists the limits by name, with what they have in use.
	ListLimits(ctx context.Context, filter LimitFilter) ([]LimitInfo, error)
	// ChangeLimit changes a limit on behalf of an operator, in one transaction with the
	// audit. Runs that are executing continue; runs that wait are examined again
	// immediately. If the limit does not exist, SetLimit creates it, and any other command
	// returns ErrNotFound. ChangeLimit returns ErrConflict for a kind that is not the
	// limit's, and for DeleteLimit while runs wait or permits are held.
	ChangeLimit(ctx context.Context, change LimitChange) error
	// Gate describes one key of a limit, or returns ErrNotFound if there is no such limit.
	// A key that no run has ever used is described as one that nothing holds and nothing
	// waits for.
	Gate(ctx context.Context, limit, key string) (GateInfo, error)
	// UseLimit takes places or starts of a limit for code outside runs, or gives them back
	// (see LimitRequest).
	UseLimit(ctx context.Context, request LimitRequest) (LimitGrant, error)
	// CheckLimits looks for violations in one snapshot: it returns at most twenty of each
	// kind, and checks only the first ten thousand runs of the lines. A sound store never
	// has any.
	CheckLimits(ctx context.Context) ([]LimitFault, error)
}

// LimitFilter narrows a list of limits. The zero value lists all that are not removed.
type LimitFilter struct {
	Names []string // only these; none: all
	Caps  bool     // also the caps of jobs and queues
}

// LimitInfo is a limit as stored.
type LimitInfo struct {
	Limit

	Edited     bool       // an operator's version is in effect, until the code's changes
	DeclaredAt *time.Time // by a worker; nil: never
	InUse      Count      // places that permits hold, over all keys; a rate has none
	Waiting    Count      // runs that wait for it; one that waits for several limits is counted in one line only
	NextAt     *time.Time // when the next waiting run may be admitted; nil: none waits, or not before another one ends
	OldestDue  *time.Time // when the first of the waiting runs was due, as far as they were counted; nil: none waits
	Done       LimitTally // by this process
}

// LimitTally counts what the admissions of one process have done with the runs of a limit
// since the process opened the store, over all keys.
type LimitTally struct {
	Admitted int64 // runs that started
	Refused  int64 // runs that did not wait because of its action: they were put off, cancelled, or are dead
	Repaired int64 // keys at which a sweep has repaired a violation: more than 0 is a bug
}

// LimitCommand is an operator's action on a limit.
type LimitCommand string

// The commands. A repeat is a no-op.
const (
	SetLimit      LimitCommand = "set"     // create or change it: everything in Limit but the state
	DrainLimit    LimitCommand = "drain"   // admit nothing more
	ResumeLimit   LimitCommand = "resume"  // let it apply again
	DisableLimit  LimitCommand = "off"     // admit everything
	DeleteLimit   LimitCommand = "delete"  // turn it off for good, if nothing waits and nothing is held
	ReleasePermit LimitCommand = "release" // end the permit of one owner
	LiftPenalty   LimitCommand = "lift"    // end the penalty of one key
)

// LimitChange is a command of an operator.
type LimitChange struct {
	Command LimitCommand
	Limit   Limit     // for SetLimit; other commands use its name only
	Key     string    // for ReleasePermit and LiftPenalty
	Owner   uuid.UUID // for ReleasePermit: as in GateInfo
	By      string    // the actor, for the audit log
}

// GateInfo describes one key of a limit.
type GateInfo struct {
	Limit     Limit
	Key       string
	InUse     int
	Permits   []PermitInfo // the oldest first, at most 100
	Waiting   Count
	Waiters   []Waiter   // in the order in which they are admitted, at most 100
	NotBefore *time.Time // because of a penalty, nothing is admitted before; nil: there is no penalty
	NextAt    *time.Time // when the next run may be admitted; nil: not known, or none waits
}

// PermitInfo is the right of one owner to places of one key.
type PermitInfo struct {
	Owner     uuid.UUID // a claim, a run, or the digest of a named owner
	Places    int
	Until     LimitUntil
	ExpiresAt *time.Time
	Runs      []RunID
	Worker    string // that executes the runs; empty: none does
}

// Waiter is a run that waits for a key of a limit.
type Waiter struct {
	Run      RunID
	Job      string
	Queue    string
	Priority int
	DueAt    time.Time
}

// LimitUsage says what code outside runs wants from a limit.
type LimitUsage string

// What it may want. Rates give starts, and semaphores give places.
const (
	UsageTake     LimitUsage = "take"     // take starts if there are enough now; otherwise take none, and learn when there will be
	UsageCharge   LimitUsage = "charge"   // take starts even if there are not enough: later ones then wait longer
	UsageAcquire  LimitUsage = "acquire"  // take places for a named owner, until they are given back or expire
	UsageRenew    LimitUsage = "renew"    // keep the same places for longer
	UsageGive     LimitUsage = "give"     // give back the owner's places
	UsagePenalize LimitUsage = "penalize" // admit nothing of the key for a time; of two penalties the one that ends later counts
)

// LimitRequest asks for places or starts of one key.
type LimitRequest struct {
	Usage  LimitUsage
	Limit  string
	Key    string
	Weight int           // zero: 1
	Owner  string        // for places
	For    time.Duration // for places and penalties
}

// LimitGrant is the answer to a LimitRequest.
type LimitGrant struct {
	Granted bool
	RetryIn time.Duration // if it is not granted: until it may be; zero: not before an owner gives places back
	Expires time.Duration // for places: until they expire
}
