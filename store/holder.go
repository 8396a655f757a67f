package store

import "github.com/durable-worker/durable-worker/lease"

// Holder names a run and the claim under which it is being executed. A write
// for a Holder is refused when the run is no longer running under that claim.
type Holder struct {
	Run   RunID
	Claim lease.ClaimID
}
