package rules

import (
	"fmt"

	"github.com/durable-worker/durable-worker/store"
)

// Bounds of store.Limits.CheckLimits.
const (
	FaultsMost  = 20     // of each sort
	FaultsLines = 10_000 // runs of the lines that are examined
	FaultsGates = 1_000  // gates with runs that wait that are examined
)

// LimitFault says what is wrong, where so many places are held of so many.
func LimitFault(fault store.LimitFaultKind, limit, key string, run store.RunID, used, most int) store.LimitFault {
	f := store.LimitFault{Fault: fault, Limit: limit, Key: key, Run: run}
	switch fault {
	case store.LimitExceeded:
		f.Text = fmt.Sprintf("%d places are held, and there are %d", used, most)
	case store.PermitOrphaned:
		f.Text = fmt.Sprintf("%d places are held by a claim that is over, or a run that has ended", used)
	case store.RunMisplaced:
		f.Text = "a run has a place in a line that is not its own"
	case store.LineUnread:
		f.Text = "a run waits in a line that no worker reads"
	default:
		f.Text = "a run is due, there is room, and no worker was notified"
	}
	return f
}
