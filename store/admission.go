package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// LineID names a line of turns: the number of a lane (its negative: of the lane's
// isolated runs), or, above those, a limit's own. A turn says that one key of a limit
// may have room for a run that waits.
type LineID = int32

// Admission is one part of a claim of limited runs: take up to Take turns of a line,
// the oldest first, and admit runs where they say that there may be room.
type Admission struct {
	Line LineID
	Take int
}

// JobLimit is a limit that a job declares for all of its runs.
type JobLimit struct {
	Default  LimitUse `json:"use"`                // what a run has that says nothing else; without a key
	Template string   `json:"template,omitempty"` // of the key, over the args; empty: one key for all, or Computed
	Computed bool     `json:"computed,omitempty"` // the key is computed by the job's code: who enqueues without it gives the key
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
	// audit. What executes continues; what waits is examined again immediately. A
	// limit that is not there is ErrNotFound, except for SetLimit, which makes it; a
	// kind that is not the limit's, and DeleteLimit while runs wait or permits are
	// held, is ErrConflict.
	ChangeLimit(ctx context.Context, change LimitChange) error
	// Gate describes one key of a limit, or returns ErrNotFound when there is no such
	// limit. A key that no run has had is one that nothing holds and no run waits for.
	Gate(ctx context.Context, limit, key string) (GateInfo, error)
	// UseLimit takes places or starts of a limit for code outside of runs, or gives
	// them back (see LimitRequest).
	UseLimit(ctx context.Context, request LimitRequest) (LimitGrant, error)
	// CheckLimits looks for what must not be, in one snapshot: at most twenty faults of
	// each sort, and, of lines, the first ten thousand runs. None is the answer that a
	// sound store gives whenever it is asked.
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
	InUse      Count      // places that permits hold, over all keys; of a rate: nothing
	Waiting    Count      // runs that wait for it, of those that wait for several limits in one line only
	NextAt     *time.Time // when the next run may be admitted that waits; nil: none waits, or not before one ends
	OldestDue  *time.Time // of the runs that wait, the one that is due first, as far as they were counted; nil: none waits
	Done       LimitTally // by this process
}

// LimitTally is what admissions of one process have done with runs of a limit since it
// opened the store, whatever the key.
type LimitTally struct {
	Admitted int64 // runs that started
	Refused  int64 // runs that it did not let wait: put off, cancelled or dead
	Repaired int64 // keys at which a sweep has found something that must not be: more than 0 is a bug
}

// LimitCommand is an operator's action on a limit.
type LimitCommand string

// The commands. A repeat is a no-op.
const (
	SetLimit      LimitCommand = "set"     // make or change it: everything that Limit says but the state
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
	Limit   Limit     // of SetLimit; of others its name counts
	Key     string    // of ReleasePermit and LiftPenalty
	Owner   uuid.UUID // of ReleasePermit: as GateInfo says
	By      string    // the actor, for the audit
}

// GateInfo describes one key of a limit.
type GateInfo struct {
	Limit     Limit
	Key       string
	InUse     int
	Permits   []PermitInfo // the oldest first, at most 100
	Waiting   Count
	Waiters   []Waiter   // in the order in which they are admitted, at most 100
	NotBefore *time.Time // nothing is admitted before: a penalty; nil: none
	NextAt    *time.Time // when the next may be admitted; nil: not known, or none waits
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

// LimitUsage says what code outside of runs wants of a limit.
type LimitUsage string

// What it may want. Starts are of rates, places of semaphores.
const (
	UsageTake     LimitUsage = "take"     // starts, if there are so many now; else nothing, and the instant when
	UsageCharge   LimitUsage = "charge"   // starts, even if there are not so many: later ones wait the longer
	UsageAcquire  LimitUsage = "acquire"  // places for a named owner, until they are given back or expire
	UsageRenew    LimitUsage = "renew"    // the same places for longer
	UsageGive     LimitUsage = "give"     // the owner's places back
	UsagePenalize LimitUsage = "penalize" // that nothing of the key is admitted for a time; the later end counts
)

// LimitRequest asks for places or starts of one key.
type LimitRequest struct {
	Usage  LimitUsage
	Limit  string
	Key    string
	Weight int           // zero: 1
	Owner  string        // of places
	For    time.Duration // of places and penalties
}

// LimitGrant is the answer.
type LimitGrant struct {
	Granted bool
	RetryIn time.Duration // when not granted: until it may be; zero: when an owner gives places back
	Expires time.Duration // of places: until they expire
}
