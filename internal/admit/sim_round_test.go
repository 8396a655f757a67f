package admit_test

import (
	"cmp"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// simLine is a line of a lane.
type simLine struct {
	line admit.GateID
	lane store.LaneID
}

// elsewhere reports whether the line of a waiter waits in the round of another gate.
func (s *sim) elsewhere(w *simWaiter) bool {
	e, parked := s.rounds[simLine{w.Gate, w.Lane}]
	return parked && e.Gate != w.Gate
}

// round is the entries of a gate, the one that has waited longest first.
func (s *sim) round(id admit.GateID) (entries []admit.Entry) {
	for _, e := range s.rounds {
		if e.Gate == id {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b admit.Entry) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Lane, b.Lane))
	})
	return entries
}

// readRounds reads the first entries of the rounds of gates with the first waiters of
// their lines, and where the lines of gates wait.
func (s *sim) readRounds(in *admit.Input, gates []admit.GateID) {
	seen := map[simLine]bool{}
	for _, id := range gates {
		counts := map[store.LaneID]int{}
		for _, e := range s.round(id) {
			if counts[e.Lane]++; counts[e.Lane] > admit.Entries(in.Room, len(gates)) {
				continue
			}
			seen[simLine{e.Line, e.Lane}] = true
			switch {
			case e.Line == e.Gate:
			case s.chance(s.trouble): // its line is busy
			default:
				e.Depth = admit.EntryDepth(in.Room, len(gates), 1+s.random.IntN(4), store.FullWait)
				for _, w := range s.line(e.Line) {
					if n := len(in.Waiters); w.Lane == e.Lane && countOf(in.Waiters[:n], e) < e.Depth {
						in.Waiters = append(in.Waiters, s.asRead(w))
					}
				}
			}
			in.Rounds = append(in.Rounds, e)
		}
	}
	for at, e := range s.rounds {
		if slices.Contains(gates, at.line) && !seen[at] {
			in.Rounds = append(in.Rounds, e)
		}
	}
}

func countOf(read []admit.Waiter, e admit.Entry) (n int) {
	for i := range read {
		if read[i].Gate == e.Line && read[i].Lane == e.Lane {
			n++
		}
	}
	return n
}

// readEntries reads the first entries of another gate without the waiters.
func (s *sim) readEntries(in *admit.Input, id admit.GateID, most int) {
	counts := map[store.LaneID]int{}
	for _, e := range s.round(id) {
		known := slices.ContainsFunc(in.Rounds, func(o admit.Entry) bool { return o.Line == e.Line && o.Lane == e.Lane })
		if counts[e.Lane]++; counts[e.Lane] <= most && e.Line != e.Gate && !known {
			in.Rounds = append(in.Rounds, e)
		}
	}
}

// waits are the keys of a dynamic window that wait for what all share.
func (s *sim) waits(id admit.GateID) (keys []admit.GateID) {
	for _, e := range s.round(id) {
		for _, gate := range e.Gates {
			if admit.Parent(gate) == id && gate != id && !s.lane(e.Lane).Paused && !slices.Contains(keys, gate) {
				keys = append(keys, gate)
			}
		}
	}
	return keys
}

func (s *sim) applyRounds(d *admit.Decision) {
	for _, e := range d.Unpark {
		require.Contains(s.t, s.rounds, simLine{e.Line, e.Lane})
		delete(s.rounds, simLine{e.Line, e.Lane})
	}
	for _, served := range d.Served {
		for at, e := range s.rounds {
			if e.Gate == served.Gate && e.Home == served.Home && e.Since.Before(served.Since) {
				e.Since = served.Since
				s.rounds[at] = e
			}
		}
	}
	for _, e := range d.Park {
		e.Depth = 0
		s.rounds[simLine{e.Line, e.Lane}] = e
		s.parked++
	}
}

// checkRounds: a line that waits in the round of a gate with room for its first run
// is announced there.
//
// A mutant that it finds: unreadRound left out.
func (s *sim) checkRounds() {
	for at, e := range s.rounds {
		if at.line == e.Gate {
			continue
		}
		for _, w := range s.line(at.line) {
			if w.Lane != at.lane {
				continue
			}
			s.note(w)
			need, left := s.need(w, e.Gate), s.left(e.Gate)
			if l := s.limits[admit.LimitOf(e.Gate)]; need <= left || l.Rate() && l.State == store.LimitActive {
				s.requireTurnAt(w, e.Gate, need, left)
			}
			break
		}
	}
}
