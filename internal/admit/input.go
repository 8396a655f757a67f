package admit

import (
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// BusyAgain is when a gate is tried again that another transaction has locked.
const BusyAgain = 2 * time.Millisecond

// HeldAgain is when a waiter is tried again whose row another transaction holds.
const HeldAgain = 50 * time.Millisecond

// BlockedAgain is when a gate is tried again that has room for a waiter, but not
// for a heavier one before it: that one may be cancelled, or its queue be paused.
const BlockedAgain = time.Second

// Input is what an admission has read, under the locks of its gates and in a
// statement later than the one that took them.
type Input struct {
	Now  time.Time // of the store's clock, read after the locks
	Room int       // how many runs the worker can take
	// Gates are those whose turns were taken, by the age of the turns, and then the
	// other gates of their waiters. Read the lines of these, too: otherwise a run
	// may start before those that wait there.
	Gates []Gate
	Lanes []Lane // of all waiters and of Kept
	// Waiters are due. The first ones of each line, in its order, and no line
	// with a gap: see Depth. In any order here.
	Waiters []Waiter
	Kept    []Kept // rows of the gates
	// Rounds are, of the gates whose turns were taken, the first entries of their
	// rounds, with the waiters of those lines; of the other gates the first entries;
	// and the entries of the lines whose own turns were taken, wherever they wait.
	Rounds []Entry
}

// OtherGates are the gates of the waiters besides those whose turns were taken, and
// whether a waiter asks a gate to cancel the oldest of its runs.
func (in *Input) OtherGates(taken []GateID) (others []GateID, cancels bool) {
	known := make(map[GateID]bool, len(taken))
	for _, gate := range taken {
		known[gate] = true
	}
	for i := range in.Waiters {
		for _, use := range in.Waiters[i].Uses {
			cancels = cancels || use.WhenFull == store.FullCancelOldest
			if !known[use.Gate] {
				known[use.Gate] = true
				others = append(others, use.Gate)
			}
		}
	}
	return others, cancels
}

// Gate is a gate as an admission has read it.
type Gate struct {
	ID    GateID
	Limit *store.Limit // nil only for AllPermits
	// Busy: another transaction has locked the gate. All else is then unknown.
	Busy bool
	Used int // of a semaphore: the sum of the weights of the permits that exist and have not expired

	Rate      Rate      // of a limit of starts
	Refunds   []Refund  // of a limit of starts, to be deleted
	NotBefore time.Time // the gate is penalized until then; the zero time: it is not

	// Depth is how many waiters of each line of the worker's lanes were read at
	// most, so that a line with as many may have more. Zero: all of them.
	Depth int
	// Entries is how many entries of each lane were read at most from the gate's
	// round, so that a lane with as many may have more. Zero: all of them.
	Entries int
	// FreesAt is when the first permit of a named owner expires; the zero time:
	// none does.
	FreesAt time.Time
	// Executing are runs with a permit, those that have executed for the longest
	// time first. Only for store.FullCancelOldest.
	Executing []Executing
	// Live are the keys of a dynamic window that have used it within the last
	// period, by Since. Only for the gate without a key, see Parent.
	Live []LiveKey
	// Waits are the keys of a dynamic window that wait in the round of the gate
	// without a key, the one that has waited longest first. Only for that gate.
	Waits []GateID
}

// Executing is a run with a permit.
type Executing struct {
	Run       store.RunID
	Weight    int
	Cancelled bool // it has been asked already
}

// Lane is a lane, or, with a negative number, its line of isolated runs.
type Lane struct {
	ID       store.LaneID
	Priority int
	Ours     bool // the admission may take runs from it
	Paused   bool // its queue is paused: its runs neither start nor keep others from starting
	// Cap is the gate of the cap of its queue, which all its runs need; zero: none.
	Cap GateID
}

// Waiter is a due run in a line.
type Waiter struct {
	Run   store.RunID
	Gate  GateID // in whose line it waits
	Lane  store.LaneID
	DueAt time.Time
	// Uses are all gates of the run, in their order. None: its only gate is Gate,
	// with a weight of 1 and no term.
	Uses []Use
	// Held: another transaction has a row of the run. It keeps its place, and is
	// tried again after HeldAgain. Where a store learns that only while it writes,
	// it says so and decides once more.
	Held bool
	// Unread: the store cannot read what the run says of its limits. It stays, and is
	// tried again after BlockedAgain.
	Unread bool
}

// Use is one gate of a run.
type Use struct {
	Gate       GateID
	Weight     int // at least 1
	Until      store.LimitUntil
	WhenFull   store.LimitAction // FullDefault: the limit's
	RetryAfter time.Duration
	Mode       store.LimitMode
	Owner      uuid.UUID // OwnerID of the named owner; zero: none
	OwnedFor   time.Duration
	// Has: the run, or its named owner, has a permit of this gate already.
	Has bool
	// Acts: the limit does not let the run simply wait, so that each such run has to
	// be examined when it comes.
	Acts bool
}

// Free reports whether the use needs no place of its gate.
func (u *Use) Free() bool { return u.Has || u.Mode == store.LimitRelease }

// Kept is a row of places that are kept for the waiters of a lane whose workers
// have not come yet.
type Kept struct {
	Gate      GateID
	Lane      store.LaneID
	ExpiresAt time.Time
}

// Decision is what an admission writes.
type Decision struct {
	Admitted []Admitted // in the order in which the worker shall execute them
	Permits  []Permit
	Moved    []Moved
	Refused  []Refused
	Cancel   []store.RunID // executing runs to be asked to end
	Turns    []Turn
	Due      []Turn // of runs that are due again later: to be inserted always, as the turn of an enqueue is
	Keep     []Kept // to be written, over the row of the same gate and lane
	Unkeep   []Kept // to be deleted, by gate and lane
	Rates    []GateRate
	Park     []Entry  // to be written, over the row of the same line and lane
	Unpark   []Entry  // to be deleted, by line and lane
	Served   []Served // before Park is written
}

// Admitted is a waiter that starts. Its row of the line is deleted.
type Admitted struct {
	Waiter
}

// Permit is a row to be written.
type Permit struct {
	Gate   GateID
	Weight int
	Until  store.LimitUntil
	// Owner is the run, or the named owner; zero: the claim. That of a named
	// owner takes the place of the one that the owner has.
	Owner     uuid.UUID
	Runs      []store.RunID // sorted; of a named owner none
	ExpiresAt time.Time     // of a named owner
}

// Moved is a waiter that goes to the line of another of its gates: the one that
// refused it. Its lane and due instant stay.
type Moved struct {
	Waiter
	To GateID
}

// Refused is a waiter that a full limit does not let wait.
type Refused struct {
	Waiter
	Action store.LimitAction // FullRetry, FullDrop or FullFail
	State  store.State       // that of the run: Pending, Cancelled or Dead
	DueAt  time.Time         // of FullRetry: when the run is due again, in the same line
	Reason string            // of FullDrop and FullFail
	By     GateID
}

// Turn is a row to be inserted. One of Decision.Turns may be left out where the
// gate has a turn on this line that is due no later: the admission that takes that
// one inserts this one again.
type Turn struct {
	Line  int32 // a lane, or a LimitLine
	DueAt time.Time
	Gate  GateID
}

// GateRate is the state of a gate that changes.
type GateRate struct {
	Gate GateID
	Rate Rate
}

// Quantum is how many waiters of one gate an admission takes at most, so that
// each gate whose turn it has gets its part of the worker.
func Quantum(room, gates int) int {
	if gates <= 0 {
		return room
	}
	return room/gates + min(room%gates, 1)
}

// Depth is how many waiters to read from each line of the worker's lanes: one
// more than the quantum, to see whether another is left; all that the worker can
// take where the limit acts on those beyond its places.
func Depth(room, gates int, action store.LimitAction) int {
	room = min(room, math.MaxInt32-1)
	if action > store.FullWait {
		return room + 1
	}
	return Quantum(room, gates) + 1
}

// DepthOfOthers is how many waiters to read from each line of other lanes: those
// that may stand before ones of the worker's.
func DepthOfOthers(room, free int) int { return max(min(room, free), 1) }

// Entries is how many entries of each lane to read from the round of a gate: one for
// each run that the admission may take there, one to see whether another is left, and
// a few for those that another gate refuses.
func Entries(room, gates int) int { return Quantum(room, gates) + 4 }

// EntryDepth is how many waiters to read from the line of one of so many entries.
func EntryDepth(room, gates, entries int, action store.LimitAction) int {
	return (Depth(room, gates, action)+entries-1)/max(entries, 1) + 1
}
