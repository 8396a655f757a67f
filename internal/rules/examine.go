package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// LateLease is how long ago a lease expired that workers should have reclaimed.
const LateLease = time.Minute

// FindLateLeases reports leases that expired LateLease ago or earlier.
func FindLateLeases(f *store.Findings, expired int64) {
	if expired == 0 {
		f.Fine("leases", "none is overdue")
		return
	}
	f.Warn("leases", fmt.Sprintf("%d expired more than %v ago and no worker reclaimed their runs", expired, LateLease),
		"any running worker does: start one, or read its log")
}

// FindPaused reports queues that are paused.
func FindPaused(f *store.Findings, paused []string) {
	if len(paused) == 0 {
		f.Fine("queues", "none is paused")
		return
	}
	f.Warn("queues", "paused: "+strings.Join(paused, ", "), "resume them when their work may continue")
}

// RunningRuns is the name of what FindStranded finds.
const RunningRuns = "running runs"

// FindStranded reports running runs without a lease; it may name one of them.
func FindStranded(f *store.Findings, stranded int64, one string) {
	if stranded == 0 {
		f.Fine(RunningRuns, "each has a lease")
		return
	}
	if one != "" {
		one = ", among them " + one
	}
	f.Warn(RunningRuns, fmt.Sprintf("%d have no lease%s: no worker executes them and nothing expires", stranded, one),
		"keep a worker running: its sweep requeues them within an hour")
}
