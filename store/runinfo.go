package store

import (
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// RunInfo is a run that executes, as handlers, middleware and hooks see it: all
// but its args.
type RunInfo struct {
	ID          RunID
	Job         string // the name under which the run is stored; see durable.Alias
	Queue       string
	Attempt     int // the one under way, from 1
	MaxAttempts int
	CrashCount  int // workers that died while they held this run
	// Fence rises with every claim of this run. Hand it to resources outside the
	// database and let them refuse a number smaller than the largest seen.
	Fence     lease.Fence
	DueAt     time.Time
	CreatedAt time.Time
	Timeout   time.Duration // of this attempt; zero: none
	Trace     string        // of the code that enqueued it, see observe.Hooks; empty: none
	Key       string        // it was enqueued with; empty: none
	Schedule  string        // name of the schedule that it is a run of; empty: none, or it cannot be read
	OccursAt  ZonedTime     // see Occurrence
	Tags      []string      // shared by all who see the run: not to be changed
	Metadata  Metadata      // likewise
}

// Occurrence returns the instant of its schedule that the run is for, in the
// schedule's zone as it was when the run was enqueued. It is what the rule names: no
// retry, jitter, spread, catch-up or late evaluation changes it, and a rerun keeps
// it, so it is the key of the period that the run is for. False: the run is of no
// occurrence (an enqueued one, also one that an operator requests of a schedule), or a
// version of durable without occurrences has stored it.
func (r RunInfo) Occurrence() (time.Time, bool) { return r.OccursAt.Time() }
