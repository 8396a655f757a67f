package store

import (
	"context"

	"github.com/durable-worker/durable-worker/lease"
)

// Holder names a run and the claim under which it is being executed. A write
// for a Holder is refused when the run is no longer running under that claim.
type Holder struct {
	Run   RunID
	Claim lease.ClaimID
}

// VerifyMost is the most holders that one StillHeld names.
const VerifyMost = 1000

// Verifier says what has become of runs that a worker has executed.
type Verifier interface {
	// StillHeld returns those of the runs that are running under the claim named with each,
	// in any order. It takes no locks. After a failover that lost commits, they may be runs
	// that the worker has settled.
	StillHeld(ctx context.Context, holders []Holder) ([]RunID, error)
}
