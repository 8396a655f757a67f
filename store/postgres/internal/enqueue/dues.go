package enqueue

import (
	"time"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// duesOf returns the wake-ups for runs that may be due before workers poll. Nothing but hints
// depends on it, so the clock of this machine is good enough, with a wide margin.
func duesOf(list []store.NewRun, set numbers.LaneSet) []store.Due {
	var all []store.Due
	last, runs := &store.NewRun{}, 1
	for i := range list {
		run := &list[i]
		if len(all) > 0 && numbers.SameLane(last, run) && run.At.Equal(last.At) && run.Delay() == last.Delay() {
			all[len(all)-1].Runs += runs
			all[len(all)-1] = all[len(all)-1].And(store.Due{Limited: len(run.Limits) > 0})
			continue
		}
		in := run.Delay()
		if !run.At.IsZero() {
			until := time.Until(run.At)
			if until >= time.Hour {
				continue
			}
			in = max(until-time.Second, 0)
		}
		if runs = 1; in > 0 && !run.At.IsZero() {
			runs = 0 // roughly: by this machine's clock
		}
		if in > store.WakeAhead && run.At.IsZero() {
			continue
		}
		last = run
		if all = append(all, store.Due{Lane: set[numbers.LaneOf(run)], Names: wake.NamesOf(run.Queue, run.Job), Runs: runs,
			Limited: len(run.Limits) > 0, In: max(in, 0)}); len(all) == wake.MostDue {
			return append(all, store.Due{Lane: all[0].Lane}) // the box overruns
		}
	}
	return all
}
