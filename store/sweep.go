package store

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// KeepForever is a retention that never ends. Any negative duration means the
// same.
const KeepForever time.Duration = -time.Second

// Sweeper deletes runs whose time is over, and repairs runs that no worker could
// reclaim.
type Sweeper interface {
	// Sweep makes one short step, in one transaction; call it until Done. It
	// deletes runs that ended longer ago than they are kept, by the store's
	// clock, with their attempts, their progress reports, and the unique keys
	// that name them. A run that a key is held for stays until the key's time is
	// over. It skips a run that is pending again, and, until a later pass, one
	// that another transaction has locked.
	//
	// It searches in two ways: along the runs that are old enough to have been
	// kept as long as the request says, and, in a full pass that begins
	// SweepPassEvery after the last one began, or sooner if there are few
	// runs, at every run whatever its id and age. The pass finds runs that took long
	// to end, that have a retention of their own, or whose ids carry another time
	// than that at which they were stored.
	//
	// The pass also hands back running runs whose claim has no lease, which
	// nothing else would ever end: an operator has deleted the lease, and its
	// worker is gone as well. They are pending and due immediately, the attempt
	// refunded, no crash counted. A run whose crash policy is CrashDead is dead; any
	// other whose cancellation was requested is cancelled. As after a crash, the crash
	// rule is stronger. The claim leaves the run, so that a late settle is
	// Rejected. The pass also requeues pending runs that are in no line, as a partial
	// restore or a change by hand leaves them.
	//
	// It also deletes cancel requests of claims that are over, workers that have
	// not been seen for longer than any run is kept, at least a week, and, when it
	// is Done, the oldest changes of the audit log that are older than the request says,
	// some thousands of them.
	//
	// One caller at a time sweeps: another gets Busy, immediately, until that one
	// is Done or has not called for SweepTenure.
	Sweep(ctx context.Context, request SweepRequest) (SweepResult, error)
}

// SweepPassEvery is how long after the beginning of one full pass the next one
// begins, at most: a store begins it sooner where the pass is short.
const SweepPassEvery = time.Hour

// SweepTenure is how long other callers wait for a sweeper that has not called again.
const SweepTenure = 10 * time.Second

// SweepRequest says how long runs are kept, when their job does not say
// (JobInfo.Retention), and bounds one step.
type SweepRequest struct {
	By            uuid.UUID     // the caller: WorkerID.Instance
	Retention     time.Duration // of succeeded and cancelled runs, from their end; zero or less: forever
	RetentionDead time.Duration // of dead runs; zero or less: forever
	// RetentionAudit is how long changes stay in the audit log; zero or less: forever.
	RetentionAudit time.Duration
	Limit          int // most runs deleted, and about as many rows read; a store may do less
}

// SweepResult is what a Sweep call did.
type SweepResult struct {
	Busy     bool           // another caller sweeps; nothing was done
	Done     bool           // nothing more is to be read for now
	Deleted  int            // runs
	Returned []ReclaimedRun // running runs that were handed back, cancelled or ended dead
	SetAside []SetAside     // what could not be deleted or handed back, and is left to the next full pass
	Mended   int            // pending runs that had lost their place in line, and have it again
	Repaired int            // permits without a holder that were deleted, and stuck keys of limits that were freed: more than 0 is a fault
}

// ValidRetention reports whether a retention is valid.
func ValidRetention(d time.Duration) bool { return d <= 0 || d >= time.Second }
