package rules

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// Edge is one end that a run waits for, as it is stored.
type Edge struct {
	Waiter, Source store.RunID // the source may be a batch: see Want
	Want           EdgeWant
	AnyOf          int // 0: it is needed; else one of those with the same number is
	Met            bool
	Name           string // of the waiter's step; empty: the waiter is a dependent
}

// EdgesOf are the edges of dependents. Each condition on any of its sources has a number of its
// own, so the stored text grows with the sources alone.
func EdgesOf(run *store.NewRun) (edges []Edge) {
	seen := map[Edge]bool{}
	add := func(edge Edge) {
		if !seen[edge] {
			seen[edge] = true
			edges = append(edges, edge)
		}
	}
	for i := range run.DependsOn {
		c := &run.DependsOn[i]
		edge := Edge{Waiter: run.ID}
		if c.Want == store.WantFailed && c.Sources() > 1 {
			edge.AnyOf = i + 1
		}
		edge.Want = WantOf(c.Want, false)
		for _, edge.Source = range c.Runs {
			add(edge)
		}
		edge.Want = WantOf(c.Want, true)
		for k := range c.Batches {
			edge.Source = c.Batches[k].ID
			add(edge)
		}
	}
	return edges
}

// Held returns the runs with dependents put off: due when they expire, or not within MaxDelay,
// until a release makes them due.
func Held(runs []store.NewRun) []store.NewRun {
	held := slices.Clone(runs)
	for i := range held {
		switch run := &held[i]; {
		case len(run.DependsOn) == 0:
		case run.ExpiresAt.IsZero():
			run.After = store.MaxDelay
		default:
			run.At = run.ExpiresAt
		}
	}
	return held
}

// Sources are the runs that dependents among the runs wait for and that are none of the runs.
func Sources(runs []store.NewRun) (ids []store.RunID) {
	seen := make(map[store.RunID]bool, len(runs))
	for i := range runs {
		seen[runs[i].ID] = true
	}
	for i := range runs {
		for _, c := range runs[i].DependsOn {
			for _, id := range c.Runs {
				if !seen[id] {
					seen[id] = true
					ids = append(ids, id)
				}
			}
		}
	}
	return ids
}

// UnknownSource is the error of an enqueue whose dependents name a run that does not exist.
func UnknownSource(id store.RunID) error {
	return fmt.Errorf("depends on run %s, which does not exist: store it before, or in the same call: %w", id, store.ErrNotFound)
}

// NotItsChild is the error of a child whose id belongs to a run that is not its parent's child.
func NotItsChild(id store.RunID) error {
	return fmt.Errorf("run %s exists, and is no child of this one under this name: %w", id, store.ErrConflict)
}

// Fate is what a condition says of an edge now.
type Fate int8

// The fates of an edge.
const (
	Unmet Fate = iota
	Met
	Never
)

// Judged is an edge with its fate.
type Judged struct {
	Edge

	Fate  Fate
	State store.State // of the source; see BatchAsRun
	Found bool        // the source exists
	Noted bool        // the end of the source will leave a notice

	happened Happened // to a batch
}

// Judge sets the fate of the edge. What was met stays met.
func (e *Judged) Judge() {
	e.Fate = Unmet
	succeeded := e.Found && e.State == store.Succeeded
	ended := !e.Found || e.State.Terminal() || e.happened.Ended
	met := e.Met
	switch e.Want.Want() {
	case store.WantSucceeded, store.WantAlive:
		met = met || succeeded
	case store.WantEnded:
		met = met || ended
	case store.WantFailed:
		met = met || e.happened.Failed || ended && !succeeded
	}
	switch {
	case met:
		e.Fate = Met
	case e.Want.Want() == store.WantFailed && succeeded, e.wantsSuccess() && ended && !e.holds():
		e.Fate = Never
	}
}

func (e *Judged) wantsSuccess() bool {
	return e.Want.Want() == store.WantSucceeded || e.Want.Want() == store.WantAlive
}

// holds reports whether the source is dead, and its retry is waited for, or is a batch of which a
// dead member was retried.
func (e *Judged) holds() bool {
	return e.Found && (!e.State.Terminal() || e.State == store.Dead && e.Want.Want() == store.WantSucceeded)
}

// Open reports whether an end of the source is still to decide about the edge. That of a dead one
// is, as it may be retried.
func (e *Judged) Open() bool { return e.Found && e.Fate == Unmet }

// Judgement is what becomes of a dependent.
type Judgement struct {
	Free  bool   // all its conditions are met
	Never string // why they can never be; empty: they can
}

// JudgeDependent decides about a dependent from all of its edges. One without any is free: its
// edges were lost.
func JudgeDependent(edges []Judged) Judgement {
	free, never := true, ""
	anyOf := map[int]Fate{} // the best of each group
	for i := range edges {
		edge := &edges[i]
		switch {
		case edge.AnyOf != 0:
			best, known := anyOf[edge.AnyOf]
			if !known {
				best = Never
			}
			if edge.Fate == Met || best == Never {
				best = edge.Fate
			}
			anyOf[edge.AnyOf] = best
		case edge.Fate == Never:
			never = edge.why()
		}
		free = free && (edge.AnyOf != 0 || edge.Fate == Met)
	}
	for i := range edges {
		switch anyOf[edges[i].AnyOf] {
		case Never:
			if edges[i].AnyOf != 0 {
				never = "none of the sources for whose failure it waits has failed"
			}
		case Unmet:
			free = free && edges[i].AnyOf == 0
		case Met:
		}
	}
	if never != "" {
		return Judgement{Never: never}
	}
	return Judgement{Free: free}
}

// why says why an edge can never be met.
func (e *Judged) why() string {
	source := "run " + e.Source.String()
	if e.Want.Batch() {
		source = "batch " + e.Source.String()
	}
	switch {
	case !e.Found:
		return source + ", which it depends on, was deleted"
	case e.State == store.Succeeded:
		return source + ", for whose failure it waits, has succeeded"
	case e.State == store.Dead && e.Want.Batch():
		return source + ", which it depends on, has dead members"
	case e.State == store.Dead:
		return source + ", which it depends on, is dead"
	case e.Want.Batch():
		return source + ", which it depends on, was cancelled, or some of its members were"
	default:
		return source + ", which it depends on, was cancelled"
	}
}

// CancelledBy returns the source for whose failure a dependent was cancelled with this reason.
func CancelledBy(reason string) (source store.RunID, ok bool) {
	rest, ok := strings.CutPrefix(reason, "run ")
	if !ok {
		return source, false
	}
	id, rest, ok := strings.Cut(rest, ", ")
	if !ok || !strings.HasPrefix(rest, "which it depends on, ") {
		return source, false
	}
	source, err := uuid.Parse(id)
	return source, err == nil
}

// ParentCancelled is why a child is cancelled with its parent.
const ParentCancelled = "its parent was cancelled"

// OutcomesInOrder puts outcomes in the order of ids; those that are missing were not found.
func OutcomesInOrder(ids []store.RunID, found map[uuid.UUID]store.RunOutcome) []store.RunOutcome {
	all := make([]store.RunOutcome, len(ids))
	for i, id := range ids {
		all[i] = found[id]
		all[i].ID = id
	}
	return all
}

// WaitersInOrder does so with those that wait for a run: its parent comes first.
func WaitersInOrder(links []store.Link) []store.Link {
	slices.SortStableFunc(links, func(a, b store.Link) int {
		return cmp.Or(falseFirst(a.Name == "", b.Name == ""), falseFirst(a.Met, b.Met), bytes.Compare(a.Run[:], b.Run[:]))
	})
	return links[:min(len(links), store.MaxLinks)]
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// LinksCounted is a number of links as store.RunLinks has it.
func LinksCounted(n int) store.Count {
	return store.Count{N: int64(min(n, store.MaxLinksCounted)), AtLeast: n >= store.MaxLinksCounted}
}

// HoldsInOrder puts holds in the order of store.Linker, and cuts them.
func HoldsInOrder(holds []store.Hold) []store.Hold {
	slices.SortFunc(holds, func(a, b store.Hold) int {
		return cmp.Or(b.DeadSince.Compare(a.DeadSince), bytes.Compare(b.Run[:], a.Run[:]))
	})
	return holds[:min(len(holds), store.MaxHolds)]
}

// LinksInOrder puts links in the order of store.RunLinks, and cuts them.
func LinksInOrder(links []store.Link) []store.Link {
	slices.SortStableFunc(links, func(a, b store.Link) int {
		return cmp.Or(falseFirst(a.Met, b.Met), cmp.Compare(a.Name, b.Name), bytes.Compare(a.Run[:], b.Run[:]))
	})
	return links[:min(len(links), store.MaxLinks)]
}
