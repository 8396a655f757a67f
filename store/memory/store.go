package memory

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/board"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store"
)

// Config reports a store where its time comes from. The zero value is usable.
type Config struct {
	// Clock answers the time. Default time.Now. It may stand still or jump
	// ahead; when it steps back the store's time stops until it has
	// caught up. It is called with the store's mutex held.
	Clock func() time.Time
}

// Store keeps runs in memory. Make it with New.
type Store struct {
	clock func() time.Time

	// evaluating is held by the one Materialize call that evaluates. It is
	// taken before mu, and only by TryLock.
	evaluating sync.Mutex

	mu     sync.Mutex // guards everything below
	latest time.Time  // the store's time never goes back behind it

	runs   map[store.RunID]*run
	byID   []*run  // every run, ascending
	lanes  []*lane // lane n is lanes[n-1]
	byName map[laneName]*lane
	leases map[lease.ClaimID]*held

	keys        map[keyName]*keyHolder
	jobs        map[string]store.JobInfo
	jobCodes    map[string]*string // what was declared of the code of each, see rules.JobCodeWith
	workers     map[uuid.UUID]workerInfo
	stats       map[statKey]*store.Tally
	schedules   map[string]*schedule
	occurrences map[occurrence]store.RunID
	audit       []change          // oldest first
	queues      map[string]bool   // whether it is paused; those that an operator has touched
	caps        map[string]*limit // of capped queues

	limits limits
	sweep  sweep

	notices []notice             // of inputs whose runs may have to be made due
	waiters []store.RunID        // runs with edges
	awaited map[store.RunID]bool // their sources
	orphans []store.RunID        // children of cancelled parents, to be cancelled

	batches   map[store.BatchID]*batch
	made      []store.BatchID     // all of them, in the order in which they were made
	deaths    []store.DeathRecord // for which runs are to be stored, the oldest first
	lastDeath int64

	places    map[string][]*place         // of each lock ever asked for
	refused   map[lease.ClaimID]time.Time // claims of locks that were given back before they came, and until when
	forced    []lock.ForceRecord
	waits     []*waitNote                 // for locks, the one to be notified next first
	listeners map[lease.ClaimID]*listener // of those who listen for releases

	signals board.Board // guards itself
}

var _ store.Store = (*Store)(nil)

// New returns an empty store.
func New(config Config) *Store {
	if config.Clock == nil {
		config.Clock = time.Now
	}
	return &Store{
		clock:       config.Clock,
		runs:        make(map[store.RunID]*run),
		byName:      make(map[laneName]*lane),
		leases:      make(map[lease.ClaimID]*held),
		keys:        make(map[keyName]*keyHolder),
		awaited:     make(map[store.RunID]bool),
		batches:     make(map[store.BatchID]*batch),
		jobs:        make(map[string]store.JobInfo),
		jobCodes:    make(map[string]*string),
		workers:     make(map[uuid.UUID]workerInfo),
		stats:       make(map[statKey]*store.Tally),
		schedules:   make(map[string]*schedule),
		occurrences: make(map[occurrence]store.RunID),
		places:      make(map[string][]*place),
		refused:     make(map[lease.ClaimID]time.Time),
		listeners:   make(map[lease.ClaimID]*listener),
		queues:      make(map[string]bool),
		caps:        make(map[string]*limit),
		limits:      newLimits(),
	}
}

// Migrate does nothing: there is no schema. It is here so that all stores are
// opened alike.
func (s *Store) Migrate(context.Context) (int, error) { return 0, nil }

// Schema says that the store has the version it wants, which is always so.
func (s *Store) Schema(context.Context) (have, want, minCompatible int, err error) {
	return 0, 0, 0, nil
}

// Close does nothing; the store can still be used.
func (s *Store) Close() {}

// run is one row. Its lane, and what was enqueued, change only while it is
// pending, by an enqueue that replaces it.
type run struct {
	id          store.RunID
	lane        *lane
	args        []byte
	maxAttempts int
	timeout     time.Duration
	onCrash     store.CrashPolicy
	tags        []string
	metadata    store.Metadata
	trace       string
	key         string          // it was enqueued with; empty: none
	batch       store.BatchID   // the zero ID: none
	schedule    string          // the empty name: none
	generation  int64           // of the schedule
	occurrence  string          // of the schedule; empty: asked for by an operator
	occursAt    store.ZonedTime // the occurrence, also of a rerun
	createdAt   time.Time
	expiresAt   time.Time // the zero time: never

	limits  []store.LimitUse // none: it is not limited
	uses    []admit.Use      // the gates of its limits, in their order
	permits []*permit        // of those that it has itself, or its claim for it

	// gate is the one in whose line the run waits, if it is limited.
	gate *gate

	// Invariant: the run is in a line of its lane, or, if it is limited, of a gate
	// and its lane, exactly while it is Pending.
	state store.State
	// dueAt orders the line, so it changes only while the run is in none.
	dueAt time.Time
	// claim is the last claim that took the run, or zero. It stays when the run
	// is settled, which reports whose settle it was; Reclaim takes it away.
	// Invariant: while the run is Running, this is its claim's id.
	claim lease.ClaimID
	// cancel is why the run is to be cancelled, while it is Running: it will not
	// be Pending again. It stays when the run succeeds.
	cancel string
	// fence only ever rises, by each claim.
	fence      lease.Fence
	attempt    int // attempts charged, the one under way included
	crashCount int
	worker     string // the last to claim it
	startedAt  time.Time
	finishedAt time.Time // set exactly when the state is terminal
	result     []byte
	reason     string // why it is dead or cancelled

	acknowledgedAt time.Time // while it is dead, by an operator
	acknowledgedBy string

	attempts   []store.Attempt // recorded outcomes, oldest first
	progress   *store.Progress // never changed once it is there
	checkpoint []byte          // JSON; nil: none

	steps  []store.StepRecord // in the order of recording
	inputs []sentInput
	edges  []rules.Edge // what it waits for: as a dependent, and its children; never changed in place
	came   []string     // the waits for children that have released the run; never changed in place
}

// isolated reports whether the run waits in its lane's line of isolated runs.
func (r *run) isolated() bool { return rules.Isolated(r.crashCount) }

// laneID is the lane's number, negative for an isolated run.
func (r *run) laneID() store.LaneID {
	if r.isolated() {
		return -r.lane.id
	}
	return r.lane.id
}

// held is the lease of one claim.
type held struct {
	worker    store.WorkerID
	runs      []*run // as claimed; never changes
	alone     bool
	renewedAt time.Time // by the last heartbeat, or when it was granted
	expiresAt time.Time // zero: a reclaim has taken a part of the runs and left the rest to the next
}

// now is the store's time. The caller holds mu.
func (s *Store) now() time.Time {
	if t := micro(s.clock()); t.After(s.latest) {
		s.latest = t
	}
	return s.latest
}

// micro brings an instant to the form in which all are kept.
func micro(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}
