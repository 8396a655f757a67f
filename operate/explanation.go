package operate

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// Explanation says why a run does not start, how it executes, why it ended, or why it
// is not there.
type Explanation struct {
	Run   store.RunID  `json:"run"`
	State *store.State `json:"state"` // nil: there is no such run
	At    time.Time    `json:"at"`    // of the store's clock
	// ServedAs is the job that has the run's job as an earlier name (durable.Alias), and
	// whose handler executes it; nil: it has its own name, or no worker has declared it.
	ServedAs *string `json:"served_as"`
	// Summary says the most important of it in one sentence.
	Summary string `json:"summary"`
	// Blockers are all that keep a pending run from starting, the one that ends last
	// first. Of a run in another state they say what it is in.
	Blockers []Blocker `json:"blockers"`
	// Earliest is when it may start. Not Sure: not before. Nil: it is not known.
	Earliest *time.Time `json:"earliest"`
	Sure     bool       `json:"sure"`
	// Ahead are the due runs that are taken before it; nil: it is not due, or not known.
	Ahead     *store.Count `json:"ahead"`
	Execution *Execution   `json:"execution"` // nil: it does not execute
	Past      string       `json:"past"`      // why it ended, or is not there; empty: it has not ended
	Next      []Remedy     `json:"next"`      // what can be done
}

// BlockerKind says in one word what a Blocker is.
type BlockerKind string

// The kinds of a run that waits. More may come.
const (
	BlockerNotDue          BlockerKind = "not_due"
	BlockerRetryDelay      BlockerKind = "retry_delay"
	BlockerSnoozed         BlockerKind = "snoozed"
	BlockerAsleep          BlockerKind = "asleep" // in a recorded sleep
	BlockerInput           BlockerKind = "input"  // it waits for an input
	BlockerChild           BlockerKind = "child"  // it waits for a run that it has called
	BlockerDependency      BlockerKind = "dependency"
	BlockerBatch           BlockerKind = "batch"      // it waits for the members of a batch
	BlockerBatchOpen       BlockerKind = "batch_open" // it waits for a batch to be closed
	BlockerQueuePaused     BlockerKind = "queue_paused"
	BlockerNoWorker        BlockerKind = "no_worker"
	BlockerWorkersSilent   BlockerKind = "workers_silent"
	BlockerWorkersDraining BlockerKind = "workers_draining"
	BlockerWorkersFull     BlockerKind = "workers_full"
	BlockerBehind          BlockerKind = "behind"
	BlockerIsolated        BlockerKind = "isolated"
	BlockerLimit           BlockerKind = "limit"
	BlockerLimitDraining   BlockerKind = "limit_draining"
	BlockerLimitFault      BlockerKind = "limit_fault" // this program cannot apply it
	BlockerRowHeld         BlockerKind = "row_held"
	BlockerPolling         BlockerKind = "polling"
	BlockerTakeoverPause   BlockerKind = "takeover_pause"
	BlockerExpires         BlockerKind = "expires" // it does not block: the run will not start after it
)

// The kinds of a run that executes.
const (
	BlockerExecuting    BlockerKind = "executing"
	BlockerCancelAsked  BlockerKind = "cancel_asked"
	BlockerPastTimeout  BlockerKind = "past_timeout"
	BlockerStuck        BlockerKind = "stuck"
	BlockerWorkerSilent BlockerKind = "worker_silent"
	BlockerLeaseExpired BlockerKind = "lease_expired"
	BlockerNoLease      BlockerKind = "no_lease"
)

// The kinds of a run that has ended, or is not there.
const (
	BlockerEnded   BlockerKind = "ended"
	BlockerKept    BlockerKind = "kept"
	BlockerKeyHeld BlockerKind = "key_held"
	BlockerDeleted BlockerKind = "deleted"
	BlockerAgedOut BlockerKind = "aged_out"
	BlockerUnknown BlockerKind = "unknown"
)

// Blocker is one reason.
type Blocker struct {
	Kind   BlockerKind     `json:"kind"`
	Text   string          `json:"text"`
	Since  *time.Time      `json:"since"`
	EndsAt *time.Time      `json:"ends_at"` // nil: it is not known
	By     *string         `json:"by"`      // who has caused it; nil: no person
	Detail json.RawMessage `json:"detail"`  // of the kind; nil: none
}

// Execution is how a run executes.
type Execution struct {
	Worker   string          `json:"worker"`
	Instance *uuid.UUID      `json:"instance"`
	Since    *time.Time      `json:"since"`
	LeaseEnd *time.Time      `json:"lease_ends_at"`
	LastBeat *time.Time      `json:"last_beat"`
	Deadline *time.Time      `json:"deadline"` // of the attempt; nil: it has no timeout
	Progress *store.Progress `json:"progress"`
}

// Remedy is something that can be done.
type Remedy struct {
	Action string `json:"action"` // a word, such as resume or retry
	Role   Role   `json:"role"`   // who may do it
	Text   string `json:"text"`
	// Command is the arguments of the command that does it, as for a shell; empty:
	// there is none.
	Command string `json:"command"`
}

// stuckText says that a worker has handlers that ignored the end of their contexts.
func stuckText(w *store.WorkerInfo) string {
	return fmt.Sprintf("%s has given up %s that did not return", described(w), counted(store.Count{N: int64(w.Stuck)}, "handler", "handlers"))
}

func restartStuck(w *store.WorkerInfo) Remedy {
	return Remedy{"restart_worker", RoleDeployer, "restart the worker: a handler that ignores its context ends only with the process",
		"workers show " + w.Instance.String()[:8]}
}

// shortText says that a worker has too little CPU for its handlers.
func shortText(w *store.WorkerInfo) string {
	return fmt.Sprintf("%s is short of CPU: its goroutines wait %v for their turn, and it begins fewer handlers", described(w), time.Duration(w.ShortOfCPU).Round(time.Millisecond))
}

func giveCPU(w *store.WorkerInfo) Remedy {
	return Remedy{"restart_worker", RoleDeployer, "set its DURABLE_MAX_CONCURRENT_RUNS to a few for each CPU, or give it more CPU", "workers show " + w.Instance.String()[:8]}
}

// startIdle is what to do for runs that wait for a worker that executes nothing else.
func startIdle() Remedy {
	return Remedy{"start_worker", RoleDeployer, "start another worker: the ones there are become idle only when their runs have ended", ""}
}

// Role says who may do something.
type Role string

// The roles. A deployer changes what runs, not what is stored.
const (
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
	RoleDeployer Role = "deployer"
)
