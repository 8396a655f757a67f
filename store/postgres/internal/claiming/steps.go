package claiming

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/durable-worker/durable-worker/store"
)

// inSteps orders the runs as the steps that took them. The database returns
// them in no order; each lane's runs by due time, dealt out to its steps, are
// what the steps took. Runs that these steps cannot have taken come last: a
// claim that is repeated with other steps still holds them, and the worker learns
// of them only from its answer.
func inSteps(runs []store.ClaimedRun, steps []store.Step) []store.ClaimedRun {
	slices.SortFunc(runs, func(a, b store.ClaimedRun) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), a.DueAt.Compare(b.DueAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	if len(runs) == 0 || len(steps) < 2 {
		return runs
	}
	lanes := map[store.LaneID]*dealt{}
	for i := 0; i < len(runs); {
		j := i + 1
		for j < len(runs) && runs[j].Lane == runs[i].Lane {
			j++
		}
		lanes[runs[i].Lane] = &dealt{runs: runs[i:j], done: make([]bool, j-i)}
		i = j
	}
	for _, step := range steps {
		if lane, ok := lanes[step.Lane]; ok {
			lane.covered = append(lane.covered, spanOf(step))
		}
	}
	for _, lane := range lanes {
		lane.covered = merge(lane.covered)
	}
	ordered := make([]store.ClaimedRun, 0, len(runs))
	for _, step := range steps {
		if lane, ok := lanes[step.Lane]; ok {
			ordered = lane.deal(ordered, spanOf(step))
		}
	}
	for i := 0; i < len(runs) && len(ordered) < len(runs); { // by lane
		lane := lanes[runs[i].Lane]
		ordered = lane.rest(ordered)
		i += len(lane.runs)
	}
	return ordered
}

// span is a range of places in a lane's line, the end excluded.
type span struct{ start, end int }

func spanOf(step store.Step) span {
	start := max(step.Skip, 0)
	return span{start, start + min(max(step.Take, 0), math.MaxInt32)}
}

// merge joins spans that touch, in order.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	merged := spans[:0]
	for _, next := range spans {
		if last := len(merged) - 1; last >= 0 && next.start <= merged[last].end {
			merged[last].end = max(merged[last].end, next.end)
		} else {
			merged = append(merged, next)
		}
	}
	return merged
}

// dealt is the runs taken from one lane, by due time.
type dealt struct {
	runs    []store.ClaimedRun
	done    []bool
	covered []span // the places that the steps look at
}

// rank is how many of the places examined lie before a place. The run at the
// n-th of those places is the n-th run taken.
func (d *dealt) rank(place int) int {
	n := 0
	for _, s := range d.covered {
		n += max(min(place, s.end)-s.start, 0)
	}
	return n
}

// deal adds the runs that a step took and no step before it.
func (d *dealt) deal(to []store.ClaimedRun, s span) []store.ClaimedRun {
	for i := d.rank(s.start); i < min(d.rank(s.end), len(d.runs)); i++ {
		if !d.done[i] {
			d.done[i] = true
			to = append(to, d.runs[i])
		}
	}
	return to
}

// rest adds the runs that no step took.
func (d *dealt) rest(to []store.ClaimedRun) []store.ClaimedRun {
	for i, done := range d.done {
		if !done {
			to = append(to, d.runs[i])
		}
	}
	return to
}
