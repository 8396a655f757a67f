package store

import (
	"time"

	"github.com/google/uuid"
)

// Facts is what decides about one run at one instant, as far as a store knows it.
// What has no meaning in the run's state is empty.
type Facts struct {
	At  time.Time // of the store's clock
	ID  RunID
	Run *Record // nil: there is no such run. Of its attempts it has the last one

	// Changes are what operators have done to the run, newest first, at most
	// FactsChanges. BulkDeletes, for a run that is not there, are the latest deletions
	// by filter: they do not name their runs.
	Changes     []Change
	BulkDeletes []Change

	Declared *JobInfo     // as workers have declared its job, maybe under a later name; nil: none has
	Workers  []WorkerInfo // as Monitor.Workers has them, at most FactsWorkers: those that reported last
	Paused   *QueuePause  // its queue is paused; nil: it is not

	// Lanes are those of the run's priority and of higher ones, of queues that are not
	// paused, with the runs that are due before it. Of a limited run there are none.
	Lanes []LaneFacts
	// More says that there are lanes besides those.
	More  bool
	Gates []GateFacts  // of a run that waits: of each of its limits, the cap of its queue among them
	Waits []StepRecord // of a run that is not due: the sleep, or the inputs, it waits for. Stores leave it nil
	Ends  []Link       // of a run that is not due: the ends of others that it waits for. Stores leave it nil
	// Batches are the batches among Ends, in their order. Stores leave it nil.
	Batches []Batch
	Held    *HeldRow // another transaction has the run in hand; only PostgreSQL can tell

	Lease        *LeaseFacts // of a running run; nil: its claim has none
	CancelReason string      // of a running run: why it is to be cancelled; empty: it is not

	KeyHolder *RunID // of a dead or cancelled run: the run that holds its key, when it is another
}

// Bounds of Facts.
const (
	FactsChanges = 20
	FactsWorkers = 1000
	FactsLanes   = 200
	FactsAhead   = 10_000 // runs counted of one lane
)

// QueuePause says who has paused a queue.
type QueuePause struct {
	By    string     // empty: the audit log does not go back so far
	Since *time.Time // nil: likewise
}

// LaneFacts is one lane with what is claimed of it before a run.
type LaneFacts struct {
	Queue    string
	Job      string
	Priority int
	Ahead    Count // runs that are due, and were due before the run if the priority is the run's own
	// Ended is how many attempts of the job on the queue have ended in the last five
	// minutes, as workers have reported.
	Ended int64
}

// GateFacts is one limit of a run that waits, with the key that is the run's.
type GateFacts struct {
	Use LimitUse

	GateInfo
}

// HeldRow is a transaction that has a run in hand.
type HeldRow struct {
	PID         int
	Application string     // empty: it is not known
	Since       *time.Time // it began; nil: it is not known
}

// LeaseFacts is the lease of a run that executes.
type LeaseFacts struct {
	Worker     string
	Instance   uuid.UUID
	AcquiredAt time.Time
	RenewedAt  time.Time // by the last heartbeat, or when it was acquired; the zero time: it is not known
	ExpiresAt  time.Time
}
