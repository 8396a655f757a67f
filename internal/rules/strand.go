package rules

import "github.com/durable-worker/durable-worker/store"

// Strand is what happens to a running run whose claim has no lease any more. No
// crash is counted, so a run that the sweep hands back ends only by its policy or
// because cancelReason is not nil. As after a crash, the policy is the stronger of the two.
func Strand(policy store.CrashPolicy, cancelReason *string) (state store.State, reason string) {
	if policy != store.CrashRetry { // also one that only a newer program knows
		return store.Dead, StrandedDead
	}
	return Released(cancelReason)
}
