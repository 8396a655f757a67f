package operate

import (
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Exactness says what a figure is.
type Exactness string

// What a figure may be.
const (
	Exact    Exactness = "exact"
	AtLeast  Exactness = "at_least" // so many were counted, and there may be more
	About    Exactness = "about"    // an estimate
	Reported Exactness = "reported" // as workers have reported, the last of them AsOf
)

// Figure is a number that says what it is.
type Figure struct {
	N    float64    `json:"n"`
	Is   Exactness  `json:"is"`
	AsOf *time.Time `json:"as_of,omitempty"` // of what was reported: the oldest report that is in it
}

// Survey is what the first line of every page says.
type Survey struct {
	At        time.Time       `json:"at"`         // of the store's clock
	Due       Figure          `json:"due"`        // runs that wait and are due, those that wait for a limit included; not those of paused queues
	Paused    Figure          `json:"paused"`     // runs that are due on paused queues
	OldestDue *store.Duration `json:"oldest_due"` // how long the first of Due has been due; nil: none is
	Executing Figure          `json:"executing"`  // handlers that have not returned
	Capacity  Figure          `json:"capacity"`   // handlers that may execute concurrently
	// Failed is the share, 0 to 1, of the attempts that ended in the last hour which
	// failed or left their run dead; nil: none ended.
	Failed  *Figure `json:"failed"`
	Ended   Figure  `json:"ended"`   // attempts that ended in the last hour
	Dead    Figure  `json:"dead"`    // runs that died in the last hour and were not acknowledged
	Alive   Figure  `json:"alive"`   // workers
	Silent  Figure  `json:"silent"`  // workers
	Partial bool    `json:"partial"` // there are more jobs on queues than could be read
}

// AttentionKind says in one word what needs attention.
type AttentionKind string

// The kinds. More may come.
const (
	AttentionNoWorkers        AttentionKind = "no_workers"        // runs are due, and no worker is alive
	AttentionUnserved         AttentionKind = "unserved"          // no living worker takes a job from a queue
	AttentionOverdue          AttentionKind = "overdue"           // the oldest run that is due has been so for long
	AttentionPausedWithWork   AttentionKind = "paused_with_work"  // a queue is paused, and runs are due on it
	AttentionDead             AttentionKind = "dead"              // runs of a job have died in the last hour
	AttentionStuck            AttentionKind = "stuck"             // handlers that do not return
	AttentionShortOfCPU       AttentionKind = "short_of_cpu"      // a worker that begins fewer handlers, because they compute
	AttentionExpiredLeases    AttentionKind = "expired_leases"    // leases that no worker has taken
	AttentionSilentWorkers    AttentionKind = "silent_workers"    // workers that were not stopped in order
	AttentionIsolatedWaiting  AttentionKind = "isolated_waiting"  // isolated runs that wait for long
	AttentionScheduleFault    AttentionKind = "schedule_fault"    // it cannot be evaluated
	AttentionScheduleOrphaned AttentionKind = "schedule_orphaned" // no worker declares it
	AttentionScheduleLate     AttentionKind = "schedule_late"     // its next occurrence should have come
	AttentionLockOverdue      AttentionKind = "lock_overdue"      // it is held for long
	AttentionLimitFull        AttentionKind = "limit_full"        // runs have waited for it for long
	AttentionLimitFault       AttentionKind = "limit_fault"       // this program cannot apply it
	AttentionHeld             AttentionKind = "held"              // runs wait for the success of a dead one
	AttentionLimitShut        AttentionKind = "limit_shut"        // runs wait for it, and it is set to admit nothing
)

// Attention is one thing that needs attention.
type Attention struct {
	Kind    AttentionKind `json:"kind"`
	Level   store.Level   `json:"level"`   // warning or failed
	Subject string        `json:"subject"` // the queue, job, worker, schedule, lock, limit or run
	Queue   string        `json:"queue,omitempty"`
	Job     string        `json:"job,omitempty"`
	Text    string        `json:"text"`
	Since   *time.Time    `json:"since"`
	Count   *store.Count  `json:"count"` // of runs; nil: it is not about runs
	Next    []Remedy      `json:"next"`
}

// AttentionList is what needs attention, the worst first.
type AttentionList struct {
	At    time.Time   `json:"at"`
	Items []Attention `json:"items"`
	Next  *string     `json:"next"` // always nil: the list is complete
}

// ProblemFilter narrows a list of problems. The zero value lists those that are open.
type ProblemFilter struct {
	Acknowledged bool // those that were acknowledged instead
	Jobs         []string
	Queues       []string
	Since        time.Time // only runs that ended at or after it; the zero time: any
}

// ProblemList is the dead runs, grouped, the group with the newest first.
type ProblemList struct {
	Groups []ProblemGroup `json:"groups"`
	Read   store.Count    `json:"read"` // runs that were grouped: the newest; at least so many when there are more
	Next   *string        `json:"next"` // always nil
}

// ProblemGroup is dead runs of one job whose reasons are alike.
type ProblemGroup struct {
	ID     string   `json:"id"` // of the job and the likeness; it stays the same
	Job    string   `json:"job"`
	Like   string   `json:"like"`   // the reason, with # for what varies
	Reason string   `json:"reason"` // of the newest
	Queues []string `json:"queues"`
	Count  int      `json:"count"`
	// FirstAt and LastAt are when the first and the newest ended.
	FirstAt time.Time   `json:"first_at"`
	LastAt  time.Time   `json:"last_at"`
	Newest  store.RunID `json:"newest"`
	// AcknowledgedAt and AcknowledgedBy are of the newest; nil: it was not.
	AcknowledgedAt *time.Time `json:"acknowledged_at"`
	AcknowledgedBy *string    `json:"acknowledged_by"`
}

// SeriesRange is how far back a series goes.
type SeriesRange string

// The ranges, with steps of 1 minute, 15 minutes, 2 hours and 6 hours.
const (
	LastHour  SeriesRange = "1h"
	LastDay   SeriesRange = "24h"
	LastWeek  SeriesRange = "7d"
	LastMonth SeriesRange = "30d"
)

// SeriesRequest asks for what was done.
type SeriesRequest struct {
	Range SeriesRange // empty: LastHour
	Queue string      // only this queue; empty: all
	Job   string      // only this job; empty: all
}

// Series is what was done, by step, oldest first, without gaps. The last step is under way.
type Series struct {
	Range SeriesRange    `json:"range"`
	At    time.Time      `json:"at"` // of the store's clock
	Step  store.Duration `json:"step"`
	Steps []SeriesStep   `json:"steps"`
	Total SeriesStep     `json:"total"`
}

// SeriesStep is what was done in one step.
type SeriesStep struct {
	At        time.Time      `json:"at"` // its beginning
	Enqueued  int64          `json:"enqueued"`
	Succeeded int64          `json:"succeeded"`
	Failed    int64          `json:"failed"`
	Dead      int64          `json:"dead"`
	Cancelled int64          `json:"cancelled"`
	Crashed   int64          `json:"crashed"`
	Busy      store.Duration `json:"busy"`
	Wait      Percentiles    `json:"wait"` // from due to begun
	Took      Percentiles    `json:"took"` // by the handler
}

// Percentiles are estimated from classes: about. Nil: there is nothing to estimate from.
type Percentiles struct {
	P50 *store.Duration `json:"p50"`
	P95 *store.Duration `json:"p95"`
	P99 *store.Duration `json:"p99"`
}
