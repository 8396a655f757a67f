package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// checkSources refuses dependents of runs that do not exist. The caller holds mu.
func (s *Store) checkSources(runs []store.NewRun) error {
	for _, id := range rules.Sources(runs) {
		if s.runs[id] == nil {
			return rules.UnknownSource(id)
		}
	}
	return nil
}

// link stores what a new run waits for.
func (s *Store) link(r *run, n *store.NewRun) {
	if r.edges = rules.EdgesOf(n); len(r.edges) > 0 {
		s.noteWaiter(r)
	}
}

// noteWaiter has releases look at a run.
func (s *Store) noteWaiter(r *run) {
	if !slices.Contains(s.waiters, r.id) {
		s.waiters = append(s.waiters, r.id)
	}
	for i := range r.edges {
		s.awaited[r.edges[i].Source] = true
	}
}

// Call stores children, and that their parents wait for them; see store.Caller.
func (s *Store) Call(ctx context.Context, calls []store.Call) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("call: %w", err)
	}
	if err := store.CheckCalls(calls); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range calls {
		if err := s.checkCall(&calls[i]); err != nil {
			return fmt.Errorf("call %q of run %s: %w", calls[i].Name, calls[i].Run, err)
		}
	}
	for i := range calls {
		call := &calls[i]
		parent := s.runs[call.Run]
		s.take(parent, call.Children)
		s.takeIn(parent, call)
		parent.beginWait(store.StepRecord{Name: call.Name, Kind: store.StepChildren, Tries: len(call.Children), At: s.now()})
	}
	return nil
}

// checkCall refuses what may not be stored.
func (s *Store) checkCall(call *store.Call) error {
	if s.verdict(call.Run, call.Claim) != store.Applied {
		return lease.ErrLost
	}
	parent := s.runs[call.Run]
	for i := range call.Children {
		if id := call.Children[i].ID; s.runs[id] != nil && !parent.isParentOf(id, call.Name) {
			return rules.NotItsChild(id)
		}
	}
	return errors.Join(s.checkLimits(call.Children), s.checkBatches(parent, call.Children))
}

// takeIn makes runs the children of the run whose handler calls them.
func (s *Store) takeIn(parent *run, call *store.Call) {
	for i := range call.Children {
		id := call.Children[i].ID
		if parent.isParentOf(id, call.Name) {
			continue
		}
		edge := rules.Edge{Waiter: parent.id, Source: id, Want: rules.WantOf(store.WantEnded, false), Name: call.Name}
		parent.edges = append(slices.Clone(parent.edges), edge)
		s.noteWaiter(parent)
	}
}

func (r *run) isParentOf(id store.RunID, name string) bool {
	return slices.ContainsFunc(r.edges, func(e rules.Edge) bool { return e.Source == id && e.Name == name && name != "" })
}

// isLinked reports whether the end of a run may concern another one.
func (s *Store) isLinked(r *run) bool {
	if slices.ContainsFunc(r.edges, func(e rules.Edge) bool { return e.Name != "" }) {
		return true
	}
	return s.awaited[r.id] || s.inBatch(r)
}

func (r *run) waitsFor(id store.RunID) bool {
	return slices.ContainsFunc(r.edges, func(e rules.Edge) bool { return e.Source == id })
}

// isNeeded reports whether an unfinished run waits for a source, or may want its result.
func (s *Store) isNeeded(source *run) bool {
	if s.inBatch(source) {
		return true
	}
	if source.state == store.Dead {
		return false
	}
	return slices.ContainsFunc(s.waiters, func(id store.RunID) bool {
		w := s.runs[id]
		return w != nil && !w.state.Terminal() && w.waitsFor(source.id)
	})
}

// orphan has the children of a run cancelled that was cancelled, or deleted unfinished.
func (s *Store) orphan(r *run) {
	for i := range r.edges {
		if r.edges[i].Name != "" {
			s.orphans = append(s.orphans, r.edges[i].Source)
		}
	}
}

// holdAgain reports whether a run that is retried waits for its conditions first.
func (r *run) holdAgain() bool {
	return r.startedAt.IsZero() && slices.ContainsFunc(r.edges, func(e rules.Edge) bool { return e.Name == "" && !e.Met })
}

// meetAll has all conditions of a dependent count as met.
func (r *run) meetAll() {
	r.edges = slices.Clone(r.edges)
	for i := range r.edges {
		r.edges[i].Met = r.edges[i].Met || r.edges[i].Name == ""
	}
}

// releaseLinked makes due what waits for runs that have ended, and cancels what never can be.
func (s *Store) releaseLinked(now time.Time) (released, ended int) {
	for changed := true; changed; {
		gone, notify := s.decideBatches(now)
		ended, changed = ended+gone, notify
		for orphans := s.orphans; len(orphans) > 0; orphans = orphans[1:] {
			s.orphans = orphans[1:]
			if r := s.runs[orphans[0]]; r != nil && !r.state.Terminal() && r.cancel == "" {
				s.cancel(r, rules.ParentCancelled, now)
				ended, changed = ended+1, true
			}
		}
		for _, id := range slices.Clone(s.waiters) {
			r := s.runs[id]
			switch {
			case r == nil:
				s.waiters = slices.DeleteFunc(s.waiters, func(w store.RunID) bool { return w == id })
			case r.state != store.Pending:
			case s.childrenCame(r) && r.dueAt.After(now):
				s.makeDue(r, now)
				released++
			case !r.dueAt.After(now):
			case r.startedAt.IsZero():
				free, never := s.judge(r)
				if free {
					s.makeDue(r, now)
					released++
				}
				if never != "" {
					s.cancel(r, never, now)
					ended, changed = ended+1, true
				}
			}
		}
	}
	return released, ended
}

// childrenCame reports whether a run waits for children of which none is unfinished any more, and
// takes note of it: a wait that the handler has left releases its run once.
func (s *Store) childrenCame(r *run) (came bool) {
	for _, step := range r.steps {
		if step.Kind != store.StepChildren {
			continue
		}
		unfinished := slices.ContainsFunc(r.edges, func(e rules.Edge) bool {
			return e.Name == step.Name && s.isUnfinished(&e)
		})
		if known := slices.Contains(r.came, step.Name); unfinished {
			r.came = slices.DeleteFunc(slices.Clone(r.came), func(name string) bool { return name == step.Name })
		} else if !known {
			r.came = append(slices.Clone(r.came), step.Name)
			came = true
		}
	}
	return came
}

// isUnfinished reports whether a child of a handler, or its batch, has not ended.
func (s *Store) isUnfinished(e *rules.Edge) bool {
	if b := s.batches[e.Source]; e.Want.Batch() {
		return b != nil && b.EndedAt == nil
	}
	child := s.runs[e.Source]
	return child != nil && !child.state.Terminal()
}

// judge decides about a dependent, and keeps what is met.
func (s *Store) judge(r *run) (free bool, never string) {
	var judged []rules.Judged
	edges := slices.Clone(r.edges)
	for i := range edges {
		if edges[i].Name != "" {
			continue
		}
		j := rules.Judged{Edge: edges[i]}
		source, b := s.runs[j.Source], s.batches[j.Source]
		switch {
		case j.Want.Batch() && b != nil:
			j.OfBatch(&b.Batch, rules.HappenedTo(&b.Batch))
		case source != nil:
			j.Found, j.State = true, source.state
		}
		j.Judge()
		edges[i].Met = j.Fate == rules.Met
		judged = append(judged, j)
	}
	if len(judged) == 0 {
		return false, ""
	}
	r.edges = edges
	judgement := rules.JudgeDependent(judged)
	return judgement.Free, judgement.Never
}

func (s *Store) makeDue(r *run, now time.Time) {
	s.leave(r, now)
	s.wait(r, now, now)
}

// Outcomes returns how runs have ended.
func (s *Store) Outcomes(ctx context.Context, ids []store.RunID) ([]store.RunOutcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("outcomes: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[store.RunID]store.RunOutcome{}
	for _, id := range ids {
		if r := s.runs[id]; r != nil {
			found[id] = s.outcome(r)
		}
	}
	return rules.OutcomesInOrder(ids, found), nil
}

// outcome is how a run has ended, if it has.
func (s *Store) outcome(r *run) store.RunOutcome {
	return store.RunOutcome{ID: r.id, Found: true, Job: r.lane.name.job, State: r.state, Result: bytes.Clone(r.result), Reason: r.reason, FinishedAt: r.finishedAt}
}

// Links returns what a run waits for, and who waits for it.
func (s *Store) Links(ctx context.Context, id store.RunID) (store.RunLinks, error) {
	var links store.RunLinks
	if err := ctx.Err(); err != nil {
		return links, fmt.Errorf("links: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byID {
		for i := range r.edges {
			e := &r.edges[i]
			link := store.Link{Want: e.Want.Want(), AnyOf: e.AnyOf, Met: e.Met, Name: e.Name}
			if e.Source == id {
				links.WaitedFor = append(links.WaitedFor, s.linked(link, r.id))
			}
			if link.Batch = e.Want.Batch(); r.id == id {
				links.WaitsFor = append(links.WaitsFor, s.linked(link, e.Source))
			}
		}
	}
	if r := s.runs[id]; r != nil && s.inBatch(r) {
		batch := r.batch
		links.Batch = &batch
	}
	links.Sources, links.Waiters = rules.LinksCounted(len(links.WaitsFor)), rules.LinksCounted(len(links.WaitedFor))
	links.WaitsFor, links.WaitedFor = rules.LinksInOrder(links.WaitsFor), rules.WaitersInOrder(links.WaitedFor)
	return links, nil
}

// Waiters returns the runs that wait for a run; see store.Linker.
func (s *Store) Waiters(ctx context.Context, id, after store.RunID) (waiters []store.RunID, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("waiters: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byID {
		waits := slices.ContainsFunc(r.edges, func(e rules.Edge) bool { return e.Source == id && !e.Met })
		if waits && bytes.Compare(r.id[:], after[:]) > 0 && len(waiters) < store.MaxSources {
			waiters = append(waiters, r.id)
		}
	}
	return waiters, nil
}

// Holds returns the dead runs that hold dependents; see store.Linker.
func (s *Store) Holds(ctx context.Context) ([]store.Hold, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("holds: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[store.RunID]int64{}
	for _, r := range s.byID {
		for i := range r.edges {
			if e := &r.edges[i]; e.Want == rules.WantOf(store.WantSucceeded, false) && s.waitsOn(r, e) {
				held[e.Source]++
			}
		}
	}
	var holds []store.Hold
	for id, n := range held {
		if r := s.runs[id]; r != nil && r.state == store.Dead && r.acknowledgedAt.IsZero() {
			holds = append(holds, store.Hold{Run: id, Job: r.lane.name.job, DeadSince: r.finishedAt,
				Dependents: store.Count{N: min(n, store.MaxHeldCounted), AtLeast: n >= store.MaxHeldCounted}})
		}
	}
	return rules.HoldsInOrder(holds), nil
}

// waitsOn reports whether a run waits for an edge's source as its dependent. The caller holds mu.
func (s *Store) waitsOn(r *run, e *rules.Edge) bool {
	return e.Name == "" && !e.Met && r.state == store.Pending && r.startedAt.IsZero() && r.dueAt.After(s.now())
}

// hasLink reports whether a run has the link that a filter asks for. The caller holds mu.
func (s *Store) hasLink(filter *store.Filter, r *run) bool {
	if filter.Batch != (store.BatchID{}) {
		return r.batch == filter.Batch && s.inBatch(r)
	}
	if filter.WaitingOn != (store.RunID{}) {
		return slices.ContainsFunc(r.edges, func(e rules.Edge) bool { return e.Source == filter.WaitingOn && s.waitsOn(r, &e) })
	}
	parent := s.runs[filter.Parent]
	return parent != nil && slices.ContainsFunc(parent.edges, func(e rules.Edge) bool { return e.Source == r.id && e.Name != "" })
}

// linked completes a link with what is at its other end.
func (s *Store) linked(link store.Link, other store.RunID) store.Link {
	link.Run = other
	if b := s.batches[other]; link.Batch && b != nil {
		link.Found, link.Job, link.State = true, b.Name, rules.BatchAsRun(&b.Batch)
		return link
	}
	if r := s.runs[other]; r != nil {
		link.Found, link.Job, link.State = true, r.lane.name.job, r.state
	}
	return link
}
