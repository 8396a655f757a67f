package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// round is the lines that wait for a gate, each of which another gate may be: the one
// whose home has waited longest first.
type round []*admit.Entry

func compareEntries(a, b *admit.Entry) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Lane, b.Lane))
}

func (r *round) add(e *admit.Entry) {
	at, _ := slices.BinarySearchFunc(*r, e, compareEntries)
	*r = slices.Insert(*r, at, e)
}

func (r *round) remove(e *admit.Entry) {
	if at, found := slices.BinarySearchFunc(*r, e, compareEntries); found {
		*r = slices.Delete(*r, at, at+1)
	}
}

// elsewhere reports whether the waiters of a lane in a gate's line wait in the round of
// another gate.
func (g *gate) elsewhere(lane store.LaneID) bool {
	e := g.entries[lane]
	return e != nil && e.Gate != g.id
}

// awaited reports whether runs wait for a gate.
func (g *gate) awaited() bool { return g.waiting > 0 || len(g.round) > 0 }

// readRounds reads the first entries of the rounds of gates, with the first waiters of
// their lines, and where the lines of the gates themselves wait.
func (a *admitting) readRounds(gates []*gate, lanes map[store.LaneID]bool) {
	known := map[*admit.Entry]bool{}
	for _, g := range gates {
		first := g.firstEntries(admit.Entries(a.request.Limit, len(gates)))
		for _, e := range first {
			known[e] = true
			read := *e
			if e.Line != e.Gate {
				read.Depth = admit.EntryDepth(a.request.Limit, len(gates), len(first), g.action())
				a.readLine(a.limits.gate(e.Line), e.Lane, read.Depth)
			}
			a.input.Rounds = append(a.input.Rounds, read)
			a.readLane(e.Lane, lanes)
		}
	}
	for _, g := range gates {
		for _, e := range g.entries {
			if !known[e] {
				a.input.Rounds = append(a.input.Rounds, *e)
			}
		}
	}
}

// firstEntries are the first entries of a round, so many of each lane at most.
func (g *gate) firstEntries(most int) (first []*admit.Entry) {
	counts := map[store.LaneID]int{}
	for _, e := range g.round {
		if counts[e.Lane]++; counts[e.Lane] <= most {
			first = append(first, e)
		}
	}
	return first
}

// readEntries reads the first entries of the round of another gate.
func (a *admitting) readEntries(g *gate, lanes map[store.LaneID]bool) {
	for _, e := range g.firstEntries(a.request.Limit + 1) {
		if e.Line == e.Gate || slices.ContainsFunc(a.input.Rounds, func(o admit.Entry) bool { return o.Line == e.Line && o.Lane == e.Lane }) {
			continue
		}
		a.input.Rounds = append(a.input.Rounds, *e)
		a.readLane(e.Lane, lanes)
	}
}

// keysInRound are the keys of a dynamic window that wait for what all of them share.
func (s *Store) keysInRound(g *gate) (keys []admit.GateID) {
	seen := map[admit.GateID]bool{}
	for _, e := range g.round {
		if s.queues[s.lanes[max(e.Lane, -e.Lane)-1].name.queue] {
			continue
		}
		for _, key := range e.Gates {
			if key != g.id && admit.Parent(key) == g.id && !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
		if len(keys) > store.MaxLimitKeys {
			break
		}
	}
	return keys
}

// writeRounds writes where lines wait now.
func (a *admitting) writeRounds(d *admit.Decision) {
	for i := range d.Unpark {
		a.limits.unpark(d.Unpark[i].Line, d.Unpark[i].Lane)
	}
	for _, served := range d.Served {
		g := a.limits.gate(served.Gate)
		for _, e := range slices.Clone(g.round) {
			if e.Home == served.Home && e.Since.Before(served.Since) {
				g.round.remove(e)
				e.Since = served.Since
				g.round.add(e)
			}
		}
	}
	for i := range d.Park {
		e := d.Park[i]
		a.limits.unpark(e.Line, e.Lane)
		e.Depth = 0
		line := a.limits.gate(e.Line)
		if line.entries == nil {
			line.entries = make(map[store.LaneID]*admit.Entry)
		}
		line.entries[e.Lane] = &e
		a.limits.gate(e.Gate).round.add(&e)
	}
}

// unpark has a line wait in no round.
func (l *limits) unpark(line admit.GateID, lane store.LaneID) {
	g := l.gate(line)
	if e := g.entries[lane]; e != nil {
		l.gate(e.Gate).round.remove(e)
		delete(g.entries, lane)
	}
}

// linesOf are the lines whose runs are shown as waiting for a gate: those in its round,
// its own, and those of sets that count for its key, wherever they wait.
func (s *Store) linesOf(g *gate) (lines []shownLine) {
	add := func(line *gate, lane store.LaneID) {
		if l := line.lines[lane]; l != nil {
			one := shownLine{line: l, home: line.homeOf(l.runs[0])}
			if e := line.entries[lane]; e != nil {
				one.since = e.Since
			}
			lines = append(lines, one)
		}
	}
	for _, e := range g.round {
		if e.Line != g.id {
			add(s.limits.gates[e.Line], e.Lane)
		}
	}
	for lane := range g.lines {
		add(g, lane)
	}
	if g.limit == nil {
		return lines
	}
	for id, set := range g.limit.gates {
		for lane, l := range set.lines {
			if e := set.entries[lane]; admit.IsSet(id) && (e == nil || e.Gate != g.id) && set.homeOf(l.runs[0]) == g.id {
				add(set, lane)
			}
		}
	}
	return lines
}

// shownLine is a line whose runs are shown as waiting for a gate.
type shownLine struct {
	*line
	home  admit.GateID
	since time.Time
}

// homeOf is whose share the runs of a gate's line count for.
func (g *gate) homeOf(first *run) admit.GateID {
	if admit.IsSet(g.id) {
		return admit.HomeOf(g.id, first.uses)
	}
	return g.id
}

// waitersOf are the first runs that wait for a gate, in the order in which it admits
// them, and how many there are.
func (s *Store) waitersOf(g *gate) (waiters []store.Waiter, all int) {
	var lines []admit.ShownLine
	for _, l := range s.linesOf(g) {
		all += len(l.runs)
		one := admit.ShownLine{Home: l.home, Since: l.since}
		for _, r := range l.runs[:min(len(l.runs), shown)] {
			one.Waiters = append(one.Waiters, store.Waiter{Run: r.id, Job: r.lane.name.job, Queue: r.lane.name.queue, Priority: r.lane.name.priority, DueAt: r.dueAt})
		}
		lines = append(lines, one)
	}
	waiters = admit.InTurn(lines)
	return waiters[:min(len(waiters), shown)], all
}

// inRound is how many runs wait in the round of a gate that stand in lines of other
// limits, and when the first was due.
func (l *limits) inRound(g *gate) (waiting int, oldest time.Time) {
	for _, e := range g.round {
		if admit.LimitOf(e.Line) == admit.LimitOf(g.id) {
			continue
		}
		if line := l.gates[e.Line].lines[e.Lane]; line != nil {
			waiting += len(line.runs)
			if first := line.runs[0].dueAt; oldest.IsZero() || first.Before(oldest) {
				oldest = first
			}
		}
	}
	return waiting, oldest
}
