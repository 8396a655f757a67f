package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// checkLimits refuses runs with limits that are not known, or that may not be
// used so.
func (s *Store) checkLimits(runs []store.NewRun) error {
	for i := range runs {
		if len(runs[i].Limits) == 0 {
			continue
		}
		if _, err := admit.UsesOf(runs[i].Limits, s.limits.offered); err != nil {
			return err
		}
	}
	return nil
}

// setLimits gives a run the limits it was enqueued with, which were checked.
func (s *Store) setLimits(r *run, limits []store.LimitUse) {
	r.limits, r.uses = slices.Clone(limits), admit.StoredUses(limits, s.limits.find)
}

// headsOfTurns are the heads of the lines of turns that say anything about served
// lanes: those of the lanes in which limited runs have waited, of their isolated
// runs, and of the limits.
func (s *Store) headsOfTurns(served []*lane, now time.Time) (heads []store.Head) {
	first := map[store.LimitID]*lane{} // of the highest priority
	for _, l := range served {
		limited := false
		for _, one := range s.limits.byID {
			if !one.lanes[l.id] && !one.lanes[-l.id] {
				continue
			}
			limited = true
			if known := first[one.ID]; known == nil || known.name.priority < l.name.priority {
				first[one.ID] = l
			}
		}
		if !limited {
			continue
		}
		heads = append(heads, s.headOfTurns(l, l.id, l.id, now))
		if _, waiting := s.limits.turns.next(-l.id); waiting {
			heads = append(heads, s.headOfTurns(l, -l.id, -l.id, now))
		}
	}
	for _, one := range s.limits.byID {
		if l := first[one.ID]; l != nil {
			heads = append(heads, s.headOfTurns(l, 0, admit.LimitLine(one.ID), now))
		}
	}
	return heads
}

func (s *Store) headOfTurns(l *lane, lane store.LaneID, line store.LineID, now time.Time) store.Head {
	h := store.Head{Lane: lane, Line: line, Queue: l.name.queue, Job: l.name.job, Priority: l.name.priority}
	if due, waiting := s.limits.turns.next(line); waiting {
		h.Waiting, h.DueAt, h.In = true, due, due.Sub(now)
	}
	return h
}

// admission takes turns, and admits runs where they say that there may be room.
func (s *Store) admission(request *store.ClaimRequest, now time.Time) []*run {
	gates := s.takeTurns(request.Admissions, now)
	if len(gates) == 0 {
		return nil
	}
	a := admitting{Store: s, request: request, now: now, input: admit.Input{Now: now, Room: request.Limit}, oldest: map[store.RunID]*limit{}}
	a.read(gates)
	decision := admit.Decide(&a.input)
	s.limits.tally.Decided(&decision)
	return a.write(&decision)
}

// takeTurns takes turns and returns their gates, by the age of the turns.
func (s *Store) takeTurns(admissions []store.Admission, now time.Time) (gates []*gate) {
	seen := map[admit.GateID]bool{}
	for _, one := range admissions {
		for _, turn := range s.limits.turns.take(one.Line, one.Take, now) {
			if g := s.limits.gates[turn.gate]; g != nil && !seen[g.id] {
				seen[g.id] = true
				gates = append(gates, g)
			}
		}
	}
	return gates
}

// admitting is an admission under way.
type admitting struct {
	*Store

	request *store.ClaimRequest
	now     time.Time
	input   admit.Input
	oldest  map[store.RunID]*limit // of runs that may be cancelled: for which limit
}

// read reads the gates with the first waiters of their lines, and the other gates
// of those waiters.
func (a *admitting) read(gates []*gate) {
	lanes := map[store.LaneID]bool{}
	turns := len(gates)
	taken := make([]admit.GateID, turns)
	a.readRounds(gates, lanes)
	for i, g := range gates {
		taken[i] = g.id
		a.readLines(g, turns, lanes)
	}
	others, cancels := a.input.OtherGates(taken)
	for _, id := range others {
		g := a.limits.gate(id)
		gates = append(gates, g)
		a.readEntries(g, lanes)
	}
	for i, g := range gates {
		read := a.readGate(g, cancels)
		if i < turns {
			read.Depth = admit.Depth(a.request.Limit, turns, g.action())
			read.Entries = admit.Entries(a.request.Limit, turns)
		}
		a.input.Gates = append(a.input.Gates, read)
	}
}

// action is what happens to runs that the gate refuses, if they say nothing else.
func (g *gate) action() store.LimitAction {
	if g.limit == nil {
		return store.FullWait
	}
	return g.limit.Action()
}

// readLines reads the first due waiters of each lane of a gate.
func (a *admitting) readLines(g *gate, gates int, lanes map[store.LaneID]bool) {
	for id := range g.lines {
		if g.elsewhere(id) {
			continue
		}
		depth := admit.DepthOfOthers(a.request.Limit, a.request.Limit)
		if slices.Contains(a.request.Lanes, id) {
			depth = admit.Depth(a.request.Limit, gates, g.action())
		}
		a.readLine(g, id, depth)
		a.readLane(id, lanes)
	}
	for id, expires := range g.kept {
		a.input.Kept = append(a.input.Kept, admit.Kept{Gate: g.id, Lane: id, ExpiresAt: expires})
		a.readLane(id, lanes)
	}
}

// readLine reads the first due waiters of a line.
func (a *admitting) readLine(g *gate, id store.LaneID, depth int) {
	l := g.lines[id]
	if l == nil {
		return
	}
	ours := slices.Contains(a.request.Lanes, id)
	for _, r := range l.runs[:min(l.due(a.now), depth)] {
		if ours {
			a.adopt(r, id)
		}
		w := admit.Waiter{Run: r.id, Gate: g.id, Lane: id, DueAt: r.dueAt}
		if !admit.Simple(r.uses) || g.limit == nil {
			w.Uses = r.usesNow()
			a.named(w.Uses, a.now)
		}
		a.input.Waiters = append(a.input.Waiters, w)
	}
}

func (a *admitting) readLane(id store.LaneID, lanes map[store.LaneID]bool) {
	if lanes[id] {
		return
	}
	lanes[id] = true
	name := &a.lanes[max(id, -id)-1].name
	lane := admit.Lane{ID: id, Priority: name.priority, Ours: slices.Contains(a.request.Lanes, id), Paused: a.queues[name.queue]}
	if known := a.capOf(id); known != nil {
		lane.Cap = admit.Unkeyed(known.ID)
	}
	a.input.Lanes = append(a.input.Lanes, lane)
}

// readGate reads what a gate admits.
func (a *admitting) readGate(g *gate, cancels bool) admit.Gate {
	read := admit.Gate{ID: g.id, Rate: g.rate, Refunds: g.refunds, NotBefore: g.notBefore}
	read.Used, read.FreesAt = g.used(a.now)
	if g.limit == nil {
		return read
	}
	read.Limit = &g.limit.Limit
	if a.oldest != nil && (cancels || g.limit.Action() == store.FullCancelOldest) { // code outside of runs cancels none
		for _, p := range g.permits {
			if p.run != nil && p.run.state == store.Running {
				read.Executing = append(read.Executing, admit.Executing{Run: p.run.id, Weight: p.weight, Cancelled: p.run.cancel != ""})
				a.oldest[p.run.id] = g.limit
			}
		}
	}
	if read.Live = g.live(a.now); g.limit.Kind == store.LimitDynamicWindow {
		read.Waits = a.keysInRound(g)
	}
	return read
}

// live are the keys of a dynamic window that have used it of late.
func (g *gate) live(now time.Time) (live []admit.LiveKey) {
	if g.limit.Kind != store.LimitDynamicWindow || admit.Parent(g.id) != g.id {
		return nil
	}
	since := map[admit.GateID]int64{}
	for id, key := range g.limit.gates {
		if id != g.id && key.rate.LastAt+g.limit.Period.Microseconds() > now.UnixMicro() && key.rate.LastAt > 0 {
			since[id] = key.rate.Since
			live = append(live, admit.LiveKey{Gate: id, LastAt: key.rate.LastAt})
		}
	}
	slices.SortFunc(live, func(x, y admit.LiveKey) int {
		return cmp.Or(cmp.Compare(since[x.Gate], since[y.Gate]), cmp.Compare(x.Gate, y.Gate))
	})
	return live[:min(len(live), store.MaxLimitKeys+1)]
}

// write does what was decided and returns the runs that were admitted, running.
func (a *admitting) write(d *admit.Decision) (admitted []*run) {
	for i := range a.input.Gates {
		a.limits.gate(a.input.Gates[i].ID).refunds = nil
	}
	for i := range d.Admitted {
		r := a.runs[d.Admitted[i].Run]
		a.stepOut(r)
		r.state = store.Running
		admitted = append(admitted, r)
	}
	for i := range d.Permits {
		a.grant(&d.Permits[i])
	}
	for i := range d.Moved {
		r := a.runs[d.Moved[i].Run]
		a.stepOut(r)
		a.standAt(r, a.limits.gate(d.Moved[i].To))
	}
	for i := range d.Refused {
		a.refuse(&d.Refused[i])
	}
	for _, id := range d.Cancel {
		if r := a.runs[id]; r.cancel == "" {
			r.cancel = rules.Oldest(a.oldest[id].Name)
		}
	}
	for _, rate := range d.Rates {
		a.limits.gate(rate.Gate).rate = rate.Rate
	}
	a.keep(d)
	a.writeRounds(d)
	for _, turn := range d.Due {
		a.limits.turns.add(turn.Line, turn.Gate, micro(turn.DueAt), a.now)
	}
	a.hintIf(a.arm(d.Turns) || len(d.Cancel) > 0)
	return admitted
}

// grant writes a permit that was decided.
func (a *admitting) grant(p *admit.Permit) {
	g := a.limits.gate(p.Gate)
	if len(p.Runs) == 0 { // of a named owner
		if has := g.ownedBy(p.Owner, a.now); has != nil {
			if p.ExpiresAt.After(has.expiresAt) {
				has.expiresAt = p.ExpiresAt
			}
			return
		}
		g.permits = slices.DeleteFunc(g.permits, func(other *permit) bool { return other.until == p.Until && other.owner == p.Owner })
		g.grant(&permit{owner: p.Owner, weight: p.Weight, until: p.Until, expiresAt: p.ExpiresAt})
		return
	}
	for _, id := range p.Runs {
		r := a.runs[id]
		one := &permit{owner: p.Owner, run: r, weight: 1, until: p.Until}
		if one.owner == (uuid.UUID{}) {
			one.owner = uuid.UUID(a.request.Claim)
		}
		for i := range r.uses {
			if r.uses[i].Gate == p.Gate {
				one.weight = r.uses[i].Weight
			}
		}
		g.grant(one)
	}
}

// refuse ends the wait of a run, or puts it off.
func (a *admitting) refuse(refused *admit.Refused) {
	r := a.runs[refused.Run]
	g := r.gate
	a.stepOut(r)
	if refused.State == store.Pending {
		r.dueAt = micro(refused.DueAt)
		a.standAt(r, g)
		return
	}
	a.finish(r, refused.State, refused.Reason, a.now)
}

// keep writes for which lanes places are kept.
func (a *admitting) keep(d *admit.Decision) {
	for _, kept := range d.Keep {
		a.limits.gate(kept.Gate).kept[kept.Lane] = kept.ExpiresAt
	}
	for _, kept := range d.Unkeep {
		delete(a.limits.gate(kept.Gate).kept, kept.Lane)
	}
}

// arm inserts turns, and reports whether one is due for a lane of other workers.
func (a *admitting) arm(turns []admit.Turn) (others bool) {
	for _, turn := range turns {
		added := a.limits.turns.addUnless(turn.Line, turn.Gate, micro(turn.DueAt))
		lane := admit.LineLimit(turn.Line) == 0
		others = others || added && lane && !turn.DueAt.After(a.now) && !slices.Contains(a.request.Lanes, turn.Line)
	}
	return others
}

// forgetGates drops gates that have nothing to remember.
func (s *Store) forgetGates(now time.Time) {
	for _, g := range s.limits.gates {
		g.used(now)
		s.limits.drop(g, now)
	}
}
