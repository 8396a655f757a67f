package admit_test

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// sim is a store in memory that does what a store does around Decide, as slowly
// and plainly as possible, with other admissions coming in between: gates are busy
// and rows are held at random.
type sim struct {
	t       *testing.T
	random  *rand.Rand
	now     time.Time
	limits  map[store.LimitID]*store.Limit
	lanes   []admit.Lane // Ours is not set
	workers [][]store.LaneID
	gates   map[admit.GateID]*simGate
	waiting map[uuid.UUID]*simWaiter
	running map[uuid.UUID]*simWaiter
	permits []admit.Permit
	turns   []admit.Turn
	kept    map[admit.Kept]time.Time // without the instant
	rounds  map[simLine]admit.Entry
	last    int     // run
	trouble float64 // how often a gate is busy or a row held

	admitted, moved, refused, keeps, ended, parked int // what has happened, so that a test can see that it happens
}

type simGate struct {
	rate      admit.Rate
	notBefore time.Time
	refunds   []admit.Refund
	starts    []started
}

type simWaiter struct {
	admit.Waiter
	uses   []admit.Use
	cancel bool
	at     time.Time // it started
}

func newSim(t *testing.T, random *rand.Rand) *sim {
	s := &sim{
		t: t, random: random, now: start,
		limits: map[store.LimitID]*store.Limit{}, gates: map[admit.GateID]*simGate{},
		waiting: map[uuid.UUID]*simWaiter{}, running: map[uuid.UUID]*simWaiter{}, kept: map[admit.Kept]time.Time{}, rounds: map[simLine]admit.Entry{},
	}
	for id, l := range []*store.Limit{
		semaphore(0, 1), semaphore(0, 3), semaphore(0, 1+random.IntN(8)),
		bucket(1+random.IntN(20), time.Second, 1+random.IntN(5)), fixed(1+random.IntN(9), 5*time.Second),
		sliding(1+random.IntN(99), 30*time.Second, 1+random.IntN(6)),
		{Kind: store.LimitDynamicWindow, Max: 20, Period: 10 * time.Second, Buckets: 1 + random.IntN(3), Least: 2, Most: 20},
		{Kind: store.LimitSemaphore, Max: 2, WhenFull: []store.LimitAction{store.FullRetry, store.FullDrop, store.FullFail, store.FullCancelOldest}[random.IntN(4)], RetryAfter: 3 * time.Second},
	} {
		l.ID = store.LimitID(id + 1)
		s.limits[l.ID] = l
	}
	for _, id := range []store.LaneID{1, 2, 3, -3} {
		s.lanes = append(s.lanes, admit.Lane{ID: id, Priority: random.IntN(2)})
	}
	s.workers = [][]store.LaneID{{1, 2, 3}, {1}, {2}, {-3}}[:1+random.IntN(4)]
	if random.IntN(2) == 0 { // otherwise the first serves almost all
		s.workers[0] = []store.LaneID{1, 3}
	}
	return s
}

func (s *sim) gate(id admit.GateID) *simGate {
	if s.gates[id] == nil {
		s.gates[id] = &simGate{}
	}
	return s.gates[id]
}

func (s *sim) chance(p float64) bool { return s.random.Float64() < p }

// turn inserts a turn, unless the gate has one on the line that is due no later.
func (s *sim) turn(line int32, gate admit.GateID, due time.Time) {
	for _, t := range s.turns {
		if t.Line == line && t.Gate == gate && !t.DueAt.After(due) {
			return
		}
	}
	s.turns = append(s.turns, admit.Turn{Line: line, DueAt: due, Gate: gate})
}

func (s *sim) limitTurn(gate admit.GateID, due time.Time) {
	s.turn(admit.LimitLine(admit.LimitOf(gate)), gate, due)
}

// enqueue stores a run with some limits and inserts its turn.
func (s *sim) enqueue() {
	s.last++
	w := &simWaiter{Waiter: admit.Waiter{Run: runID(s.last), Lane: s.lanes[s.random.IntN(len(s.lanes))].ID, DueAt: s.now}}
	if s.chance(.1) {
		w.DueAt = s.now.Add(time.Duration(s.random.IntN(5)) * time.Second)
	}
	for len(w.uses) == 0 || len(w.uses) < 6 && s.chance(.4) {
		l := s.limits[store.LimitID(1+s.random.IntN(len(s.limits)))]
		key := string("abc"[s.random.IntN(3)])
		if l.ID%2 == 0 && l.Kind != store.LimitDynamicWindow {
			key = ""
		}
		use := admit.Use{Weight: 1, Until: store.UntilSettled, Acts: l.WhenFull > store.FullWait}
		if s.chance(.3) && l.Kind != store.LimitDynamicWindow {
			use.Weight = 1 + s.random.IntN(max(min(l.Capacity(), 3), 1))
		}
		switch {
		case l.Rate():
		case s.chance(.2):
			use.Until = []store.LimitUntil{store.UntilFinished, store.UntilFinishedOrRevived}[s.random.IntN(2)]
		case s.chance(.15):
			use.Mode, use.Owner, use.OwnedFor = store.LimitMode(1+s.random.IntN(2)), admit.OwnerID("batch"), 2*time.Second
		}
		for _, gate := range admit.Gates(l, key) {
			if use.Gate = gate; !slices.ContainsFunc(w.uses, func(u admit.Use) bool { return u.Gate == gate }) {
				w.uses = append(w.uses, use)
			}
		}
	}
	admit.Order(w.uses)
	s.wait(w)
}

// wait puts a run into the line where it belongs.
func (s *sim) wait(w *simWaiter) {
	s.note(w)
	w.Gate = admit.LineOf(w.uses)
	s.waiting[w.Run] = w
	s.turns = append(s.turns, admit.Turn{Line: w.Lane, DueAt: w.DueAt, Gate: w.Gate})
}

// note notes which permits a run, or its owner, has.
func (s *sim) note(w *simWaiter) {
	for i := range w.uses {
		u := &w.uses[i]
		u.Has = slices.ContainsFunc(s.permits, func(p admit.Permit) bool {
			return p.Gate == u.Gate && !admit.Expired(p.ExpiresAt, s.now) && (p.Owner == w.Run || u.Owner != uuid.Nil && p.Owner == u.Owner)
		})
	}
}

// used is what the permits of a gate come to.
func (s *sim) used(gate admit.GateID) (used int) {
	for _, p := range s.permits {
		if p.Gate == gate && !admit.Expired(p.ExpiresAt, s.now) {
			used += p.Weight
		}
	}
	return used
}

// end ends a running run in a state, and releases what ends with that.
func (s *sim) end(w *simWaiter, state store.State) {
	delete(s.running, w.Run)
	s.ended++
	for _, u := range w.uses {
		if admit.GivesBack(u.Mode, state) {
			s.release(u.Gate, u.Owner, uuid.Nil, 0)
		}
		s.release(u.Gate, uuid.Nil, w.Run, u.Weight)
	}
	s.releaseOwn(w, state)
	if state == store.Pending {
		w.DueAt = s.now
		s.wait(w)
	}
}

// releaseOwn deletes the permits of a run that end as it comes to a state.
func (s *sim) releaseOwn(w *simWaiter, state store.State) {
	for _, p := range slices.Clone(s.permits) {
		if p.Owner == w.Run && admit.Ends(p.Until, state) {
			s.release(p.Gate, w.Run, uuid.Nil, 0)
		}
	}
}

// release deletes the permit of an owner, or takes a run out of its claim's, and
// inserts the turn.
func (s *sim) release(gate admit.GateID, owner, run uuid.UUID, weight int) {
	for i := range s.permits {
		p := &s.permits[i]
		switch at := slices.Index(p.Runs, run); {
		case p.Gate != gate:
		case owner != uuid.Nil && p.Owner == owner:
			s.permits = slices.Delete(s.permits, i, i+1)
			s.limitTurn(gate, s.now)
			return
		case owner == uuid.Nil && p.Owner == uuid.Nil && at >= 0:
			p.Runs, p.Weight = slices.Delete(slices.Clone(p.Runs), at, at+1), p.Weight-weight
			if len(p.Runs) == 0 {
				require.Zero(s.t, p.Weight, "what is left of a permit without runs")
				s.permits = slices.Delete(s.permits, i, i+1)
			}
			s.limitTurn(gate, s.now)
			return
		}
	}
}

// line is the due waiters of a gate, in its order.
func (s *sim) line(gate admit.GateID) (line []*simWaiter) {
	for _, w := range s.waiting {
		if w.Gate == gate && !w.DueAt.After(s.now) {
			line = append(line, w)
		}
	}
	slices.SortFunc(line, s.compare)
	return line
}

func (s *sim) compare(a, b *simWaiter) int {
	return cmp.Or(cmp.Compare(s.lane(b.Lane).Priority, s.lane(a.Lane).Priority), a.DueAt.Compare(b.DueAt), slices.Compare(a.Run[:], b.Run[:]))
}

func (s *sim) lane(id store.LaneID) *admit.Lane {
	i := slices.IndexFunc(s.lanes, func(l admit.Lane) bool { return l.ID == id })
	return &s.lanes[i]
}

// read is the gate as an admission reads it.
func (s *sim) read(id admit.GateID, depth int) admit.Gate {
	g := s.gate(id)
	read := admit.Gate{ID: id, Limit: s.limits[admit.LimitOf(id)], Used: s.used(id), Rate: g.rate, Refunds: g.refunds, NotBefore: g.notBefore, Depth: depth}
	for _, p := range s.permits {
		if p.Gate == id && p.ExpiresAt.After(s.now) && (read.FreesAt.IsZero() || p.ExpiresAt.Before(read.FreesAt)) {
			read.FreesAt = p.ExpiresAt
		}
	}
	if admit.IsSet(id) {
		read.Limit = nil
	}
	if read.Limit == nil {
		return read
	}
	if read.Limit.WhenFull == store.FullCancelOldest {
		for _, w := range slices.SortedFunc(maps.Values(s.running), func(a, b *simWaiter) int { return a.at.Compare(b.at) }) {
			if i := slices.IndexFunc(w.uses, func(u admit.Use) bool { return u.Gate == id }); i >= 0 {
				read.Executing = append(read.Executing, admit.Executing{Run: w.Run, Weight: w.uses[i].Weight, Cancelled: w.cancel})
			}
		}
	}
	if read.Limit.Kind == store.LimitDynamicWindow && !admit.Keyed(id) {
		for key, g := range s.gates {
			if ends := g.rate.LastAt + read.Limit.Period.Microseconds(); admit.Keyed(key) && admit.LimitOf(key) == read.Limit.ID && g.rate.LastAt > 0 && ends > s.now.UnixMicro() {
				read.Live = append(read.Live, admit.LiveKey{Gate: key, LastAt: g.rate.LastAt})
			}
		}
		slices.SortFunc(read.Live, func(a, b admit.LiveKey) int {
			return cmp.Or(cmp.Compare(s.gate(a.Gate).rate.Since, s.gate(b.Gate).rate.Since), cmp.Compare(a.Gate, b.Gate))
		})
		read.Waits = s.waits(id)
	}
	return read
}
