package store

import "slices"

// unfinishedKept is how many unfinished runs a store remembers of a schedule that
// may have any number of them.
const unfinishedKept = 100

// Unfinished are the runs of a schedule that its store remembers and that have
// not ended, oldest first.
type Unfinished struct {
	IDs    []RunID
	Others bool // older ones were left out, which may not have ended either
}

// ReadUnfinished reads what Unfinished.Keep has made. The zero id stands for
// those that were left out.
func ReadUnfinished(kept []RunID) Unfinished {
	u := Unfinished{IDs: kept}
	for i := range kept {
		if kept[i] == (RunID{}) {
			u.IDs, u.Others = slices.Concat(kept[:i], kept[i+1:]), true
			break
		}
	}
	return u
}

// Keep is what a store keeps: the latest hundred, or as many as may be unfinished
// at once if that is more, so that it can tell when there is no room for another.
func (u Unfinished) Keep(plan *Plan) []RunID {
	most := max(unfinishedKept, min(plan.MaxUnfinished, MaxUnfinishedRuns))
	left := max(len(u.IDs)-most, 0)
	if left == 0 && !u.Others {
		return u.IDs
	}
	return slices.Concat([]RunID{{}}, u.IDs[left:])
}

// Unclear tells whether the runs that are remembered leave open if there is room
// for another by a policy: the store then has to ask for all.
func (u Unfinished) Unclear(plan *Plan, overlap OverlapPolicy) bool {
	return u.Others && overlap != OverlapAllow && !plan.Full(len(u.IDs))
}
