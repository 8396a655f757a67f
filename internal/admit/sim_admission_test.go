package admit_test

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// admission is the claim of limited runs by a worker. It reports whether there was
// a turn for it.
func (s *sim) admission(serves []store.LaneID, room int) bool {
	taken := s.takeTurns(serves, room)
	if len(taken) == 0 {
		return false
	}
	in := admit.Input{Now: s.now, Room: room, Lanes: slices.Clone(s.lanes)}
	for i := range in.Lanes {
		in.Lanes[i].Ours = slices.Contains(serves, in.Lanes[i].ID)
	}
	var gates []admit.GateID
	for _, t := range taken {
		switch {
		case slices.Contains(gates, t.Gate):
		case s.chance(s.trouble): // busy: its turn goes back
			s.turns = append(s.turns, admit.Turn{Line: t.Line, DueAt: s.now, Gate: t.Gate})
		default:
			gates = append(gates, t.Gate)
		}
	}
	s.readLines(&in, gates)
	d := admit.Decide(&in)
	s.check(&in, &d)
	s.apply(&in, &d)
	return true
}

// takeTurns deletes due turns of the lines that a worker reads, the oldest first.
func (s *sim) takeTurns(serves []store.LaneID, most int) (taken []admit.Turn) {
	slices.SortStableFunc(s.turns, func(a, b admit.Turn) int { return a.DueAt.Compare(b.DueAt) })
	s.turns = slices.DeleteFunc(s.turns, func(t admit.Turn) bool {
		mine := admit.LineLimit(t.Line) > 0
		for _, lane := range serves {
			mine = mine || t.Line == lane && !s.lane(lane).Paused
		}
		if !mine || t.DueAt.After(s.now) || len(taken) == most {
			return false
		}
		taken = append(taken, t)
		return true
	})
	return taken
}

// readLines reads the gates, the first waiters of their lines, and the other gates
// of those, of which some are busy, and whose lines are read half of the time.
func (s *sim) readLines(in *admit.Input, gates []admit.GateID) {
	deep := s.chance(.5)
	s.readRounds(in, gates)
	for _, id := range gates {
		g := s.read(id, 0)
		action := store.FullWait
		if g.Limit != nil {
			action = g.Limit.Action()
		}
		g.Depth = admit.Depth(in.Room, len(gates), action)
		read := map[store.LaneID]int{}
		g.Entries = admit.Entries(in.Room, len(gates))
		for _, w := range s.line(id) {
			if s.elsewhere(w) {
				continue
			}
			depth := g.Depth
			if !in.Lanes[slices.IndexFunc(in.Lanes, func(l admit.Lane) bool { return l.ID == w.Lane })].Ours {
				depth = admit.DepthOfOthers(in.Room, 3)
			}
			if read[w.Lane]++; read[w.Lane] <= depth {
				in.Waiters = append(in.Waiters, s.asRead(w))
			}
		}
		in.Gates = append(in.Gates, g)
	}
	known := map[admit.GateID]bool{}
	for _, g := range in.Gates {
		known[g.ID] = true
	}
	waiters := in.Waiters
	for _, w := range waiters {
		for _, u := range w.Uses {
			if known[u.Gate] {
				continue
			}
			known[u.Gate] = true
			s.readEntries(in, u.Gate, in.Room+1)
			switch {
			case s.chance(s.trouble):
				in.Gates = append(in.Gates, admit.Gate{ID: u.Gate, Limit: s.limits[admit.LimitOf(u.Gate)], Busy: true})
			case deep:
				s.readOther(in, u.Gate)
			default:
				g := s.read(u.Gate, 1) // nothing was read: one that is read would be all
				in.Gates = append(in.Gates, g)
			}
		}
	}
	s.random.Shuffle(len(in.Waiters), func(i, j int) { in.Waiters[i], in.Waiters[j] = in.Waiters[j], in.Waiters[i] })
	for at, expires := range s.kept {
		in.Kept = append(in.Kept, admit.Kept{Gate: at.Gate, Lane: at.Lane, ExpiresAt: expires})
	}
}

// readOther reads another gate with its line.
func (s *sim) readOther(in *admit.Input, id admit.GateID) {
	g := s.read(id, 4)
	read := map[store.LaneID]int{}
	for _, w := range s.line(id) {
		if s.elsewhere(w) {
			continue
		}
		if read[w.Lane]++; read[w.Lane] <= 4 {
			in.Waiters = append(in.Waiters, s.asRead(w))
		}
	}
	in.Gates = append(in.Gates, g)
}

// asRead is a waiter as an admission reads it: of one with one gate and no term
// the uses may be missing.
func (s *sim) asRead(w *simWaiter) admit.Waiter {
	s.note(w)
	read := w.Waiter
	read.Held = s.chance(s.trouble / 2)
	plain := len(w.uses) == 1 && w.uses[0] == admit.Use{Gate: w.Gate, Weight: 1, Until: store.UntilSettled}
	if !plain || s.chance(.5) {
		read.Uses = slices.Clone(w.uses)
	}
	return read
}

// apply writes a decision down.
func (s *sim) apply(in *admit.Input, d *admit.Decision) {
	for _, g := range in.Gates {
		if !g.Busy {
			s.gate(g.ID).refunds = nil
		}
	}
	s.permits = slices.DeleteFunc(s.permits, func(p admit.Permit) bool { return admit.Expired(p.ExpiresAt, s.now) })
	for _, p := range d.Permits {
		if !p.ExpiresAt.IsZero() {
			s.permits = slices.DeleteFunc(s.permits, func(q admit.Permit) bool { return q.Gate == p.Gate && q.Owner == p.Owner })
		}
		s.permits = append(s.permits, p)
	}
	for _, r := range d.Rates {
		s.gate(r.Gate).rate = r.Rate
	}
	for _, a := range d.Admitted {
		w := s.waiting[a.Run]
		require.NotNil(s.t, w)
		delete(s.waiting, a.Run)
		w.at = s.now
		s.running[a.Run] = w
		s.admitted++
	}
	for _, m := range d.Moved {
		s.waiting[m.Run].Gate = m.To
		s.moved++
	}
	for _, r := range d.Refused {
		w := s.waiting[r.Run]
		s.refused++
		if r.State == store.Pending {
			require.True(s.t, r.DueAt.After(s.now))
			w.DueAt = r.DueAt
			continue
		}
		require.NotEmpty(s.t, r.Reason)
		delete(s.waiting, r.Run)
		s.releaseOwn(w, r.State)
	}
	for _, run := range d.Cancel {
		require.Contains(s.t, s.running, run)
		s.running[run].cancel = true
	}
	for _, k := range d.Keep {
		s.kept[admit.Kept{Gate: k.Gate, Lane: k.Lane}] = k.ExpiresAt
		s.keeps++
	}
	for _, k := range d.Unkeep {
		delete(s.kept, admit.Kept{Gate: k.Gate, Lane: k.Lane})
	}
	s.applyRounds(d)
	s.turns = append(s.turns, d.Due...)
	for _, t := range d.Turns {
		require.False(s.t, t.DueAt.Before(s.now))
		s.turn(t.Line, t.Gate, t.DueAt)
	}
}

// step does one thing at random.
func (s *sim) step() {
	s.now = s.now.Add(time.Duration(s.random.IntN(1000)) * time.Microsecond)
	switch choice := s.random.IntN(100); {
	case choice < 25:
		for range 1 + s.random.IntN(6) {
			s.enqueue()
		}
	case choice < 55:
		s.admission(s.workers[s.random.IntN(len(s.workers))], 1+s.random.IntN(8))
	case choice < 80:
		s.endSome(.4)
	case choice < 88:
		s.now = s.now.Add(time.Duration(s.random.IntN(3000)) * time.Millisecond)
	case choice < 90:
		lane := &s.lanes[s.random.IntN(len(s.lanes))]
		lane.Paused = !lane.Paused
	case choice < 93:
		s.change(1 + s.random.IntN(len(s.limits)))
	case choice < 95: // cancel one that waits
		for _, w := range s.sorted(s.waiting)[:min(1, len(s.waiting))] {
			delete(s.waiting, w.Run)
			s.releaseOwn(w, store.Cancelled)
		}
	case choice < 97: // penalize
		for _, id := range slices.Sorted(maps.Keys(s.gates)) {
			if g := s.gates[id]; s.limits[admit.LimitOf(id)] != nil && s.chance(.1) {
				g.notBefore = s.now.Add(time.Second)
				s.limitTurn(id, g.notBefore)
			}
		}
	default:
		s.handBack()
	}
}

// change changes the max or the state of a semaphore, and then inserts a turn for
// each gate with a waiter.
func (s *sim) change(which int) {
	l := *s.limits[store.LimitID(which)]
	if l.State = store.LimitState(s.random.IntN(3)); !l.Rate() {
		l.Max = s.random.IntN(5)
	}
	s.set(&l)
}

func (s *sim) set(l *store.Limit) {
	s.limits[l.ID] = l
	for _, w := range s.sorted(s.waiting) {
		if admit.LimitOf(w.Gate) == l.ID && !admit.IsSet(w.Gate) {
			s.limitTurn(w.Gate, s.now)
		}
	}
	for _, e := range s.rounds {
		if admit.LimitOf(e.Gate) == l.ID {
			s.limitTurn(e.Gate, s.now)
		}
	}
}

// handBack gives back runs whose handlers have not begun.
func (s *sim) handBack() {
	for _, w := range s.sorted(s.running)[:min(2, len(s.running))] {
		for _, u := range w.uses {
			l := s.limits[admit.LimitOf(u.Gate)]
			if g := s.gate(u.Gate); l.Rate() && len(g.starts) > 0 {
				if i := slices.IndexFunc(g.starts, func(st started) bool { return st.run == w.Run && st.at.Equal(w.at) }); i >= 0 {
					g.refunds = append(g.refunds, admit.Refund{Weight: u.Weight, ChargedAt: w.at})
					g.starts = slices.Delete(g.starts, i, i+1)
					s.limitTurn(u.Gate, s.now)
				}
			}
		}
		s.end(w, store.Pending)
	}
}

func (s *sim) sorted(runs map[uuid.UUID]*simWaiter) (all []*simWaiter) {
	for _, w := range runs {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *simWaiter) int { return slices.Compare(a.Run[:], b.Run[:]) })
	return all
}

// endSome ends running runs with a probability, and those that were asked to.
func (s *sim) endSome(p float64) {
	for _, w := range s.sorted(s.running) {
		switch {
		case w.cancel:
			s.end(w, store.Cancelled)
		case !s.chance(p):
		case s.chance(.2):
			s.end(w, store.Pending)
		case s.chance(.1):
			s.end(w, store.Dead)
		default:
			s.end(w, store.Succeeded)
		}
	}
}
