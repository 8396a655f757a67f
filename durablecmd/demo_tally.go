package durablecmd

import (
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

// tally is what the demo's store holds.
type tally struct {
	enqueued int // by the demo
	fired    int // by its schedule
	retried  int // runs that were given more than one attempt

	pending, running, succeeded, dead, cancelled int
	waiting                                      int // of the pending ones, those with a limit

	kinds    map[string]kindTally
	lastFire time.Time // due time of the latest occurrence
}

// kindTally is the same of one kind of work.
type kindTally struct {
	total, finished, dead, running, waiting int
}

// count sums up runs.
//
// Invariant: enqueued + fired = pending + running + succeeded + dead + cancelled.
func count(runs []durable.Record) tally {
	t := tally{kinds: map[string]kindTally{}}
	for _, r := range runs {
		kind := t.kinds[r.Job]
		kind.total++
		if r.State.Terminal() {
			kind.finished++
		}
		switch r.State {
		case durable.Pending:
			t.pending++
			if len(r.Limits) > 0 {
				kind.waiting++
				t.waiting++
			}
		case durable.Running:
			t.running++
			kind.running++
		case durable.Succeeded:
			t.succeeded++
		case durable.Dead:
			t.dead++
			kind.dead++
		case durable.Cancelled:
			t.cancelled++
		}
		if r.Schedule == nil {
			t.enqueued++
		} else {
			t.fired++
			if r.DueAt.After(t.lastFire) {
				t.lastFire = r.DueAt
			}
		}
		if r.Attempt > 1 {
			t.retried++
		}
		t.kinds[r.Job] = kind
	}
	return t
}

// String is the demo's last line. Of the runs enqueued and the schedules
// fired, each has succeeded or is dead, unless the line before says otherwise.
func (t tally) String() string {
	return fmt.Sprintf("demo: enqueued %d, succeeded %d, dead %d, retried %d, schedules fired %d",
		t.enqueued, t.succeeded, t.dead, t.retried, t.fired)
}

// demoEvent says what happened to a run between two looks, if it is worth a
// line.
func demoEvent(before, after durable.Record) string {
	name := after.Job + " " + after.ID.String()[32:]
	seen := before.Job != ""
	switch {
	case after.State == durable.Dead && before.State != durable.Dead:
		return fmt.Sprintf("%s is dead after %d attempts: %s", name, after.Attempt, orDash(after.Error))
	case after.State == durable.Pending && after.Error != nil && (before.Error == nil || before.Attempt != after.Attempt):
		return fmt.Sprintf("%s failed attempt %d of %d: %s", name, after.Attempt, after.MaxAttempts, orDash(after.Error))
	case after.State == durable.Succeeded && before.State != durable.Succeeded && after.Attempt > 1:
		return fmt.Sprintf("%s succeeded in attempt %d", name, after.Attempt)
	case after.Schedule != nil && !seen:
		return fmt.Sprintf("%s was enqueued by the schedule %s", name, *after.Schedule)
	default:
		return ""
	}
}
