package store

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/lease"
)

// Store is everything that a client and a worker need from an engine. It adds
// nothing to its roles. The stores are packages postgres, sqlite and memory;
// storetest.TestStore is the contract in executable form.
//
// All methods may be called concurrently. Times are the store's: it stamps and
// compares with the store's clock (the database's on PostgreSQL). An error that is
// not one of this package's sentinels means that the outcome is unknown, and
// every method may then be called again with the same arguments.
type Store interface {
	Taker
	ClaimEnqueuer
	Caller
	Claimer
	Verifier
	heartbeat.Renewer
	Waker
	Catalog
	Schedules
	ScheduleAdmin
	Inspector
	Counter
	Reporter
	Stepper
	Releaser
	Linker
	Batches
	BatchWaiter
	Deaths
	Sweeper
	Controls
	Sessions
	Limits
	Monitor
	Census
	Stats
}

// Enqueuer takes runs. A Client, a Store, a store bound to a transaction (Tx),
// and the Run of a handler are Enqueuers.
type Enqueuer interface {
	// Enqueue stores all the runs or none, and returns one receipt for each,
	// in order. A run whose ID is already stored is left unchanged and its
	// receipt says Existing; that makes a repeat safe. A run whose Key
	// another run of its job holds may not be stored, or may change that other run
	// (see KeyPolicy); its receipt then has the other's ID and says Existing.
	// Concurrent runs with one key, and runs within one call, take effect one after
	// another: each sees the effect of the one before it. Runs are checked first
	// (see CheckRuns); the first fault refuses them all.
	Enqueue(ctx context.Context, runs ...NewRun) ([]Receipt, error)
}

// Receipt is the answer to one enqueued run.
type Receipt struct {
	ID       RunID // of the run that is there now
	Existing bool  // it was already there: no run was stored
}

// LaneID names one lane: the runs of one (queue, job, priority), in due order.
// The negative of a lane's number is the line of its isolated runs, which have
// been in more than one crash and are claimed alone.
type LaneID = int32

// Serves names what a worker executes: any of the jobs on any of the queues.
type Serves struct {
	Queues []string
	Jobs   []string
	// From may name, for some lanes, the instant from which to search for the first
	// waiting run, so that a store need not read what was claimed long ago. It may
	// search earlier. Lanes that are not named, and lines of isolated runs, are
	// searched from their beginning.
	From map[LaneID]time.Time
}

// Head is the first waiting run of a lane, or the first turn of a line of turns.
type Head struct {
	Lane LaneID // negative: the line of isolated runs
	// Line is not zero where the head is of turns: limited runs may be admitted. Waiting,
	// DueAt and In are then those of the first turn. The line of a limit has the queue,
	// job and priority of the served lane of the highest priority in which its runs
	// have waited, and no Lane.
	Line     LineID
	Queue    string
	Job      string
	Priority int
	Waiting  bool          // false: nothing waits in this lane, and the fields below mean nothing
	DueAt    time.Time     // of the first waiting run
	In       time.Duration // until it is due on the store's clock; zero or less: due
	// After is how long past DueAt this worker leaves the run to others that expect it too.
	After time.Duration
}

// Step is one part of a claim: read the lane from an instant on, skip Skip due
// runs, take up to Take. Every step counts the line as it was before the claim:
// a later step of the same lane has to skip what earlier ones take.
type Step struct {
	Lane LaneID
	From time.Time // lower bound of due_at; the zero time is none
	Skip int
	Take int
}

// WorkerID identifies one worker process.
type WorkerID struct {
	Name     string    // a label for people; may repeat
	Instance uuid.UUID // random per process start
}

// ClaimRequest requests runs.
type ClaimRequest struct {
	Claim    lease.ClaimID
	Worker   WorkerID
	Duration time.Duration // of the lease
	Steps    []Step        // in the order wanted
	// Admissions make the claim one of limited runs: it takes turns, in the order
	// wanted, and Steps are empty. Lanes are those that runs may be admitted from.
	Admissions []Admission
	Lanes      []LaneID
	Limit      int  // how many runs to take at most; at least 1
	Alone      bool // nothing else executes in the worker's process; recorded for the crash rule. Only with Limit 1
	Guess      bool // sent for the first time, without knowing of a run that is due: an answer without runs needs no second look
	// Next is how soon the worker claims again if it has room; zero: not known. What it
	// settles until then, a store may write together with that claim.
	Next time.Duration
	// Exhausted, if it is not nil, is set by a store that knows after a claim of limited
	// runs that no run is left on the lines of its Admissions which could start now, or will
	// at an instant that it knows.
	Exhausted *bool
}

// ClaimedRun is a run as its claim returns it: what a handler needs.
type ClaimedRun struct {
	ID          RunID
	Lane        LaneID
	Attempt     int // the one that begins, from 1
	MaxAttempts int
	CrashCount  int
	Fence       lease.Fence
	DueAt       time.Time
	CreatedAt   time.Time
	Timeout     time.Duration // of this attempt; zero: none
	Expired     bool          // its ExpiresAt has passed: to be cancelled, not executed
	Trace       string        // as it was enqueued
	Key         string        // likewise; empty: none
	Schedule    string        // name of the schedule it is of; empty: none
	OccursAt    ZonedTime     // the instant of the schedule that it is for, see RunInfo; empty: none
	Tags        []string
	Metadata    Metadata
	Args        []byte
	// Linked says that another run may be concerned by its end: when it is settled, runs are to be
	// released.
	Linked bool
}

// Settlement ends executions of runs of one claim.
type Settlement struct {
	Claim  lease.ClaimID
	Worker WorkerID
	Runs   []Settled
	// Limited says that the claim was one of limited runs (see ClaimRequest.Admissions).
	Limited bool
	Last    bool // no other run of the claim remains: its lease ends in the same transaction
	// Claimed is how many runs the claim's answer had; zero: unknown. When the
	// lease covers others that are still running, Last leaves it to expire, so
	// that Reclaim finds them.
	Claimed int
}

// Settled is one run with its outcome.
type Settled struct {
	ID RunID
	// Lane is the one that the claim's answer named. Where a run is to be due again later, the
	// store gives the lane's wake-up to the workers of this process alone; zero, or for a
	// worker that drains: it is not known, and the store wakes all.
	Lane    LaneID
	Outcome Outcome
}

// Verdict is the store's answer to one Settled.
type Verdict int8

// The verdicts. A write that was Rejected has changed nothing.
const (
	Applied        Verdict = iota + 1 // this write landed
	AlreadyApplied                    // an earlier write of the same claim had already landed
	Rejected                          // the run is no longer the claim's: lease.ErrLost
	Deferred                          // another transaction holds the run's row at this moment: settle it again later
)

// MostCrashes is the largest crash count of a run, which rises no further, and the
// largest WorkerConfig.MaxCrashes.
const MostCrashes = math.MaxInt16

// ReclaimRequest requests the runs that dead workers left.
type ReclaimRequest struct {
	MaxCrashes int           // a crash in isolation that brings the count here ends the run in dead
	Limit      int           // most leases read; zero: none is taken, only Now and Soon are answered
	Horizon    time.Time     // when not zero, leases that expire after it are left alone even if they have expired
	Ahead      time.Duration // how far ahead Soon reads
	Runs       int           // most runs taken, which may be a part of a lease; zero: as many as the store takes per call
	Server     int64         // the server that has answered before (see ReclaimResult); none is taken if another one answers. Zero: any may
}

// ReclaimResult is what a Reclaim call did.
type ReclaimResult struct {
	Now      time.Time // of the store's clock
	Leases   int       // expired leases ended; equal to the limit when there may be more
	Soon     bool      // before this call a lease had expired, or was to expire within Ahead
	Runs     []ReclaimedRun
	SetAside []SetAside // what could not be taken, and stopped nothing else
	// Server identifies the server that has answered, from its start to its end; zero: the
	// store has none. After a failover, a restart or a restore another one answers, and what
	// the one before it had acknowledged last may be gone.
	Server int64
}

// ReclaimedRun is one run reclaimed from a dead worker.
type ReclaimedRun struct {
	ID         RunID
	Lane       LaneID
	Job        string
	Queue      string
	Worker     string // the name of the worker that lost it
	State      State  // Pending, or Dead, or Cancelled when that was requested
	CrashCount int
}

// Claimer is the worker's part of a store.
type Claimer interface {
	// Heads returns every lane that a worker serves, except those of paused queues,
	// each with its first waiting run, and the lines of isolated runs that are not
	// empty. It takes no locks.
	Heads(ctx context.Context, serves Serves) ([]Head, error)
	// Claim takes due runs by the request's steps, or by its admissions, and leases them
	// together: one lease, at most Limit runs, each charged one attempt and given a
	// higher fence. It skips runs that another claim is taking at the same moment, and
	// returns the runs in the order of the steps. If there are none, there is no lease.
	// The same claim sent again, while its lease exists, returns those of the runs
	// of the first time that are still running under it. The answer belongs to the
	// caller, who may change it.
	Claim(ctx context.Context, request ClaimRequest) ([]ClaimedRun, error)
	// HandBack requeues the runs of a claim whose answer never came. Runs that are
	// still running under it are handed back as Settle does it: pending and due
	// now, the attempt refunded, no crash counted, or cancelled if that was
	// requested. From then on, for the duration of its lease, the same claim gets
	// no runs, even if it was still on its way: its lease stays without runs until
	// it expires. A repeat is a no-op. held is how many runs are left because another
	// transaction holds their rows at this moment: call it again.
	HandBack(ctx context.Context, request ClaimRequest) (held int, err error)
	// Settle ends executions. Only a run that is still running under the
	// settlement's claim changes; whether its lease has expired does not
	// matter as long as no other claim has taken it over. The verdicts come in the
	// order of the runs, settlement after settlement. All happens in one transaction,
	// except for runs that are Deferred, whose claim keeps its lease. If an operator
	// has requested a run's cancellation, the run is cancelled where its outcome would
	// have made it pending. Once a Store has answered without an error, it keeps no
	// part of settlements: the caller reuses their memory.
	Settle(ctx context.Context, settlements []Settlement) ([]Verdict, error)
	// Reclaim requeues the runs of expired leases: pending, due now, the
	// attempt refunded, one crash counted. From the second crash on, a run is
	// isolated. A run whose crash policy is CrashDead, or which was claimed Alone
	// and whose count has reached MaxCrashes, is dead with a reason; any other
	// whose cancellation was requested is cancelled. The claim leaves the run, so
	// that a late settle is Rejected and not taken as AlreadyApplied. A lease with
	// more runs than the request takes stays for the next call. A run or a
	// lease that the store refuses to change stops no other: it is named in
	// SetAside, and set aside for a time that grows with each try.
	Reclaim(ctx context.Context, request ReclaimRequest) (ReclaimResult, error)
}

// WakeAhead is how long before it is due a run causes a wake-up, so that workers that
// would sleep longer notice it.
const WakeAhead = time.Minute

// DeclareAgain is how long a worker waits before it declares again after the store has
// refused a part of a declaration.
const DeclareAgain = 5 * time.Minute

// Declaration is what a worker sends the store when it starts, and hourly.
type Declaration struct {
	Worker    WorkerID
	Limits    []Limit
	Jobs      []JobInfo
	Schedules []Schedule
	// DisableOrphans pauses schedules that no worker has declared for this long;
	// zero: none.
	DisableOrphans time.Duration
}

// Catalog holds what workers declare.
type Catalog interface {
	// Declare stores the worker, its jobs and its schedules, and updates a job that
	// is known. A schedule whose Hash is the stored one is left unchanged, even if
	// an operator has edited it since. Another hash replaces the schedule, begins a
	// new generation and plans it again, but only if the worker has started after
	// the one that declared the stored hash first, or if no worker has declared the
	// stored hash within DeclaredWithin: an older program does not undo a newer one's
	// schedule. A schedule that was paused as an orphan is resumed. A job or a schedule
	// that the store refuses stops no other: the error is then a *SetAsideError, and
	// all else is declared.
	Declare(ctx context.Context, declaration Declaration) error
	// Touch writes the row of a worker, and creates it if there is none. It is as
	// small as a renewal, and shows a worker whether the store accepts writes.
	Touch(ctx context.Context, worker WorkerID) error
	// Jobs lists the jobs that workers have declared, by name.
	Jobs(ctx context.Context) ([]JobInfo, error)
}

// Schedules materializes due occurrences.
type Schedules interface {
	// Materialize evaluates up to limit schedules that are due (or not planned
	// yet): it calls decide for each and stores the decisions, all in one
	// transaction. One caller at a time evaluates; another gets Busy immediately.
	// A store may let two evaluate, apart from each other, while more are due than
	// a caller's limit.
	// It locks the schedules first, and then reads the unfinished runs that decide
	// sees. An occurrence that is already stored is skipped. A schedule
	// with a fault, or with an occurrence that CheckRuns refuses, keeps its plan
	// and stops no other; nor does one whose row the store refuses to change,
	// which is named in SetAside and set aside for a while. decide must be quick
	// and must not call the store; now is the store's time. Of the skips, the
	// latest thousand of a schedule are kept.
	Materialize(ctx context.Context, limit int, decide func(now time.Time, s Schedule) Decision) (MaterializeResult, error)
	// ReevaluateNow re-evaluates immediately the schedules of these names that
	// wait for an earlier run to end. Others, and unknown names, are skipped.
	ReevaluateNow(ctx context.Context, names ...string) error
}

// MaterializeResult is what a Materialize call did.
type MaterializeResult struct {
	Busy bool // another caller evaluates; nothing was done
	Due  int  // schedules evaluated; equal to the limit when there may be more
	Runs []RunID
	Next time.Duration // until the next schedule is due; negative: none

	// Waits are the schedules it left waiting, each with every run, of those it
	// remembers, that had not ended.
	Waits []WaitingSchedule

	SetAside []SetAside // schedules that could not be advanced, and stopped no other
}

// WaitingSchedule is a schedule that waits for a run of its own to end.
type WaitingSchedule struct {
	Schedule string
	Run      RunID
	Pause    time.Duration // until the schedule is evaluated again
}

// Inspector reads runs.
type Inspector interface {
	// Run returns one run with its attempts, or ErrNotFound.
	Run(ctx context.Context, id RunID) (Record, error)
	// Runs lists runs by descending id, without their attempts and stacks.
	Runs(ctx context.Context, filter Filter) (Page, error)
	// Counts returns the number of runs in each state, zeros included.
	Counts(ctx context.Context) (map[State]Count, error)
	// Queues lists the queues that are known, by name. Survey counts what waits on them.
	Queues(ctx context.Context) ([]QueueInfo, error)
	// Changes lists what operators, and policies in their place, have changed,
	// newest first. The oldest may have been dropped.
	Changes(ctx context.Context, filter ChangeFilter) (ChangePage, error)
}

// Counter counts the runs that pass a filter.
type Counter interface {
	// CountMatching returns, for each state that the filter asks for, how many
	// runs pass it. Before and Limit have no effect. A store examines a bounded
	// number of runs of each state, at least 100,000, the newest of the succeeded
	// ones: where there are more, the number is a lower bound.
	CountMatching(ctx context.Context, filter Filter) (map[State]Count, error)
}

// String returns the verdict's word.
func (v Verdict) String() string {
	switch v {
	case Applied:
		return "applied"
	case AlreadyApplied:
		return "already applied"
	case Rejected:
		return "rejected"
	case Deferred:
		return "deferred"
	default:
		return "none"
	}
}
