package admit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// check compares a decision with what it was made of, before it is applied.
func (s *sim) check(in *admit.Input, d *admit.Decision) {
	gates := map[admit.GateID]*admit.Gate{}
	for i := range in.Gates {
		gates[in.Gates[i].ID] = &in.Gates[i]
	}
	lanes := map[store.LaneID]admit.Lane{}
	for _, l := range in.Lanes {
		lanes[l.ID] = l
	}
	require.LessOrEqual(s.t, len(d.Admitted), in.Room)
	gone := map[uuid.UUID]bool{}
	for _, a := range d.Admitted {
		require.False(s.t, gone[a.Run], "admitted twice")
		gone[a.Run] = true
		require.True(s.t, lanes[a.Lane].Ours && !lanes[a.Lane].Paused && !a.Held)
		s.checkAllOrNothing(gates, d, s.waiting[a.Run])
	}
	for _, m := range d.Moved {
		require.False(s.t, gone[m.Run])
		gone[m.Run] = true
		require.True(s.t, slices.ContainsFunc(s.waiting[m.Run].uses, func(u admit.Use) bool { return u.Gate == m.To && m.To != m.Gate }))
	}
	for _, r := range d.Refused {
		require.False(s.t, gone[r.Run])
		gone[r.Run] = true
	}
	s.checkLimits(gates, d)
	s.checkOrder(in, d, gone, gates, lanes)
}

// checkAllOrNothing: a run that is admitted gets all it needs, and none of its
// gates was busy.
//
// Mutants that it finds: admit without the case of a busy gate; grant only for the
// use of the line's gate.
func (s *sim) checkAllOrNothing(gates map[admit.GateID]*admit.Gate, d *admit.Decision, w *simWaiter) {
	for _, u := range w.uses {
		if u.Free() {
			continue
		}
		g := gates[u.Gate]
		require.True(s.t, g != nil && !g.Busy)
		if !g.Limit.Rate() {
			require.True(s.t, slices.ContainsFunc(d.Permits, func(p admit.Permit) bool {
				return p.Gate == u.Gate && (slices.Contains(p.Runs, w.Run) || u.Owner != uuid.Nil && p.Owner == u.Owner)
			}))
			continue
		}
		if g.Limit.State == store.LimitActive {
			s.gate(u.Gate).starts = append(s.gate(u.Gate).starts, started{at: s.now, k: min(u.Weight, g.Limit.Capacity()), run: w.Run})
			require.True(s.t, slices.ContainsFunc(d.Rates, func(r admit.GateRate) bool { return r.Gate == u.Gate }))
		}
	}
}

// checkLimits: no admission brings the permits of a semaphore above its max.
//
// Mutants that it finds: left without g.taken, left without g.Used, grant without
// g.taken, closed without the state draining, before always 0 with left of another
// gate not asked.
func (s *sim) checkLimits(gates map[admit.GateID]*admit.Gate, d *admit.Decision) {
	given := map[admit.GateID]int{}
	for i, p := range d.Permits {
		again := slices.ContainsFunc(d.Permits[:i], func(q admit.Permit) bool { return q.Gate == p.Gate && p.Owner != uuid.Nil && p.Owner == q.Owner })
		known := again || slices.ContainsFunc(s.permits, func(q admit.Permit) bool {
			return q.Gate == p.Gate && p.Owner != uuid.Nil && p.Owner == q.Owner && !admit.Expired(q.ExpiresAt, s.now)
		})
		if !known {
			given[p.Gate] += p.Weight
		}
	}
	for id, k := range given {
		l := gates[id].Limit
		switch used := gates[id].Used; {
		case l.State == store.LimitOff:
		case l.State == store.LimitDraining || l.Max == 0 || gates[id].NotBefore.After(s.now):
			require.Fail(s.t, "a closed gate has admitted")
		case k > l.Max: // one heavier than all there is counts as that
			require.Zero(s.t, used)
			require.LessOrEqual(s.t, len(d.Permits[slices.IndexFunc(d.Permits, func(p admit.Permit) bool { return p.Gate == id })].Runs), 1)
		default:
			require.LessOrEqual(s.t, used+k, l.Max)
		}
	}
}

// checkOrder: within a gate none is admitted before another one of the worker's
// lanes that comes before it, nor in the place of one of another lane.
//
// Mutants that it finds: compareWaiters without the priority, with the due
// instants the other way round; admitNext without g.ahead for other lanes; a head
// that is too heavy not blocking (g.walled left out).
func (s *sim) checkOrder(in *admit.Input, d *admit.Decision, gone map[uuid.UUID]bool, gates map[admit.GateID]*admit.Gate, lanes map[store.LaneID]admit.Lane) {
	tried := map[uuid.UUID]bool{} // again, as a row is held or a gate busy
	for _, w := range in.Waiters {
		tried[w.Run] = w.Held || slices.ContainsFunc(s.waiting[w.Run].uses, func(u admit.Use) bool {
			return !u.Free() && u.Gate != w.Gate && (gates[u.Gate] == nil || gates[u.Gate].Busy)
		})
	}
	for _, a := range d.Admitted {
		w := s.waiting[a.Run]
		if i := slices.IndexFunc(w.uses, func(u admit.Use) bool { return u.Gate == w.Gate && !u.Free() && u.Owner == uuid.Nil }); i < 0 {
			continue
		}
		stay := 0
		for _, b := range in.Waiters {
			other := s.waiting[b.Run]
			free := slices.ContainsFunc(other.uses, func(u admit.Use) bool { return u.Gate == b.Gate && u.Free() })
			if b.Gate != a.Gate || gone[b.Run] || free || lanes[b.Lane].Paused || s.compare(other, w) >= 0 {
				continue
			}
			if lanes[b.Lane].Ours {
				require.True(s.t, tried[b.Run], "one before it stays")
			}
			if at, kept := s.kept[admit.Kept{Gate: b.Gate, Lane: b.Lane}]; lanes[b.Lane].Ours || !kept || at.After(s.now) {
				stay++
			}
		}
		if l := gates[a.Gate].Limit; l != nil && l.State == store.LimitActive && !l.Rate() {
			require.Less(s.t, gates[a.Gate].Used+stay, l.Max, "its place belongs to others")
		}
	}
}

// checkArmed: a due waiter that its gate has room for has a turn, and so has one
// that waits for an instant.
//
// Mutants that it finds: arm left out; arm without offer, so that a paused or
// skipped lane gets none; ours without its turn at the end of the keeping; later
// left out; enough without FreesAt; unread left out; refuse moving without
// inserting into the line of the other gate.
func (s *sim) checkArmed() {
	seen := map[admit.Kept]bool{}
	for _, w := range s.sorted(s.waiting) {
		id := w.Gate
		if seen[admit.Kept{Gate: id}] {
			continue
		}
		seen[admit.Kept{Gate: id}] = true
		line := slices.DeleteFunc(s.line(id), s.elsewhere)
		left := s.left(id)
		walled := false
		for _, w := range line {
			s.note(w)
			need := s.need(w, id)
			first := !seen[admit.Kept{Gate: id, Lane: w.Lane}]
			seen[admit.Kept{Gate: id, Lane: w.Lane}] = true
			if l := s.limits[admit.LimitOf(id)]; first && (!walled || s.lane(w.Lane).Paused) && (need <= left || !admit.IsSet(id) && l.Rate() && l.State == store.LimitActive) {
				s.requireTurn(w, need, left)
			}
			walled = walled || need > left && !s.lane(w.Lane).Paused
		}
	}
}

func (s *sim) requireTurn(w *simWaiter, need, left int) { s.requireTurnAt(w, w.Gate, need, left) }

func (s *sim) requireTurnAt(w *simWaiter, gate admit.GateID, need, left int) {
	latest := s.now.Add(admit.KeepForIsolated + time.Second)
	if l := s.limits[admit.LimitOf(gate)]; need > left {
		latest = latest.Add(2*l.Period + time.Second)
	}
	for _, t := range s.turns {
		line := t.Line == w.Lane || t.Line == admit.LimitLine(admit.LimitOf(gate))
		if line && t.Gate == gate && !t.DueAt.After(latest) {
			return
		}
	}
	require.Fail(s.t, "no turn", "run %v of lane %d at gate %x of limit %d needs %d of %d", w.Run, w.Lane, int64(gate), admit.LimitOf(gate), need, left)
}

// left is what a gate has free; of a rate as code outside of runs finds it.
func (s *sim) left(id admit.GateID) int {
	l := s.limits[admit.LimitOf(id)]
	switch {
	case admit.IsSet(id) || l == nil || l.State == store.LimitOff:
		return 1 << 20
	case l.State == store.LimitDraining || s.gate(id).notBefore.After(s.now):
		return 0
	case !l.Rate():
		return max(l.Max-s.used(id), 0)
	}
	gates := []admit.Gate{s.read(id, 0)}
	if l.Kind == store.LimitDynamicWindow && admit.Keyed(id) {
		gates = append(gates, s.read(admit.Parent(id), 0))
	}
	return sort.Search(l.Max, func(k int) bool { return !admit.Take(s.now, k+1, gates...)[0].OK })
}

// need is what a waiter needs of a gate.
func (s *sim) need(w *simWaiter, id admit.GateID) int {
	for _, u := range w.uses {
		if l := s.limits[admit.LimitOf(id)]; u.Gate == id && !u.Free() {
			return max(min(u.Weight, l.Capacity()), 1)
		}
	}
	return 0
}

// drain ends everything: all lanes are served, all limits admit, and each waiter
// gets its turn.
func (s *sim) drain() {
	s.trouble = 0
	for i := range s.lanes {
		s.lanes[i].Paused = false
	}
	for id := range s.limits {
		l := *s.limits[id]
		l.State, l.Max = store.LimitActive, max(l.Max, 3)
		s.set(&l)
	}
	s.workers = [][]store.LaneID{{1}, {2, 3}, {-3}}
	for steps := 0; len(s.waiting)+len(s.running) > 0; steps++ {
		require.Less(s.t, steps, 20_000, "%d waiters stay", len(s.waiting))
		for _, p := range slices.Clone(s.permits) {
			if p.Until == store.UntilFinishedOrRevived && s.running[p.Owner] == nil && s.waiting[p.Owner] == nil {
				s.release(p.Gate, p.Owner, uuid.Nil, 0) // its run is deleted
			}
		}
		asked := false
		for _, lanes := range s.workers {
			asked = s.admission(lanes, 5) || asked
			s.now = s.now.Add(time.Millisecond)
		}
		for _, w := range s.sorted(s.running) {
			s.end(w, store.Succeeded)
		}
		if !asked { // sleep until the next turn
			require.NotEmpty(s.t, s.turns, "%d waiters stay without a turn", len(s.waiting))
			next := slices.MinFunc(s.turns, func(a, b admit.Turn) int { return a.DueAt.Compare(b.DueAt) }).DueAt
			if next.After(s.now) {
				s.now = next
			}
		}
	}
}

// checkRates: no gate has started more than its bound, in any window.
func (s *sim) checkRates() {
	for id, g := range s.gates {
		l := s.limits[admit.LimitOf(id)]
		switch {
		case l == nil || !l.Rate():
		case l.Kind == store.LimitDynamicWindow:
			most := *l
			if admit.Keyed(id) {
				most.Max = l.Most
			}
			if l.Buckets == 1 {
				most.Kind = store.LimitFixedWindow
			}
			holdsBound(s.t, &most, g.starts)
		default:
			holdsBound(s.t, bounded(l), g.starts)
		}
	}
}

func (s *sim) run(steps int) {
	for range steps {
		s.step()
		s.checkArmed()
		s.checkRounds()
	}
	s.checkRates()
	s.drain()
	s.checkRates()
	require.Empty(s.t, slices.DeleteFunc(slices.Clone(s.permits), func(p admit.Permit) bool {
		return !p.ExpiresAt.IsZero() || p.Until == store.UntilFinishedOrRevived && s.running[p.Owner] == nil
	}), "permits stay")
}

// histories is how many random histories are run in each test.
const histories = 40

func TestHistoriesNeverExceedAndNeverStop(t *testing.T) {
	sum := map[string]int{}
	for seed := range uint64(histories) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newSim(t, rand.New(rand.NewPCG(seed, 7)))
			defer func() { sum["parked"] += s.parked }()
			s.trouble = []float64{0, .1, .3}[seed%3]
			s.run(250)
			sum["admitted"] += s.admitted
			sum["moved"] += s.moved
			sum["refused"] += s.refused
			sum["keeps"] += s.keeps
		})
	}
	t.Log(sum)
	for what, n := range sum {
		require.Greater(t, n, 50, what)
	}
}

// FuzzHistories: as above, with the choices made by the input.
func FuzzHistories(f *testing.F) {
	f.Add([]byte("choices"), uint8(1))
	f.Fuzz(func(t *testing.T, choices []byte, trouble uint8) {
		s := newSim(t, rand.New(&chosen{choices: choices, rest: rand.NewPCG(uint64(len(choices)), 7)}))
		s.trouble = float64(trouble%3) / 6
		s.run(30 + min(len(choices), 100))
	})
}

// chosen is a source of random numbers that reads them from the input, as long as
// there are some.
type chosen struct {
	choices []byte
	rest    *rand.PCG
}

// Uint64 is the next number.
func (c *chosen) Uint64() uint64 {
	if len(c.choices) < 2 {
		return c.rest.Uint64()
	}
	n := uint64(c.choices[0])<<56 | uint64(c.choices[1])<<48
	c.choices = c.choices[2:]
	return n
}
