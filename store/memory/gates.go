package memory

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// limits is what a store knows of limits.
type limits struct {
	byName map[string]*limit
	byID   []*limit // limit n is byID[n-1]
	gates  map[admit.GateID]*gate
	turns  turns
	tally  *admit.Tally

	// freed says that a place was freed for which a run waits, since the last hint.
	freed bool
}

func newLimits() limits {
	return limits{byName: make(map[string]*limit), gates: make(map[admit.GateID]*gate), turns: make(turns), tally: new(admit.Tally)}
}

// limit is a limit as stored.
type limit struct {
	store.Limit
	hash       string // that the code has declared; empty: an operator's own
	edited     bool
	declaredAt time.Time // by a worker, whatever its hash
	hashAt     time.Time // the stored hash was last declared
	broughtAt  time.Time // the worker that brought the hash had started

	lanes map[store.LaneID]bool // in which its runs have ever waited; negative: isolated
	gates map[admit.GateID]*gate
}

// gate is one key of a limit.
type gate struct {
	id        admit.GateID
	limit     *limit // nil: runs wait here that have all their permits, or it is that of a set
	key       string // as its first run spells it
	lines     map[store.LaneID]*line
	waiting   int       // runs in all lines
	permits   []*permit // the oldest first
	rate      admit.Rate
	refunds   []admit.Refund
	notBefore time.Time
	kept      map[store.LaneID]time.Time    // places are kept for the lane until then
	round     round                         // lines that wait for the gate
	entries   map[store.LaneID]*admit.Entry // where its own lines wait
}

// permit is the right of an owner to places of a gate. That of a claim is one row
// for each run.
type permit struct {
	gate      *gate
	owner     uuid.UUID
	run       *run // nil: of a named owner
	weight    int
	until     store.LimitUntil
	expiresAt time.Time // of a named owner
}

// find is a limit by the name it is stored under, or nil.
func (l *limits) find(name string) *store.Limit {
	if known := l.byName[name]; known != nil {
		return &known.Limit
	}
	return nil
}

// offered is a limit that runs may be enqueued with, or nil.
func (l *limits) offered(name string) *store.Limit {
	known := l.byName[name]
	if known == nil || known.State == store.LimitRemoved && known.declaredAt.IsZero() {
		return nil
	}
	return &known.Limit
}

// gate finds a gate and makes it when it is new.
func (l *limits) gate(id admit.GateID) *gate {
	g := l.gates[id]
	if g != nil {
		return g
	}
	g = &gate{id: id, lines: make(map[store.LaneID]*line), kept: make(map[store.LaneID]time.Time)}
	if number := admit.LimitOf(id); number > 0 {
		known := l.byID[number-1]
		known.gates[id] = g
		if !admit.IsSet(id) {
			g.limit = known
		}
	}
	l.gates[id] = g
	return g
}

// drop forgets a gate that has nothing to remember.
func (l *limits) drop(g *gate, now time.Time) {
	if g.awaited() || len(g.entries) > 0 || len(g.permits) > 0 || g.notBefore.After(now) || g.remembers(now) {
		return
	}
	delete(l.gates, g.id)
	if number := admit.LimitOf(g.id); number > 0 {
		delete(l.byID[number-1].gates, g.id)
	}
}

// remembers reports whether what the gate has admitted still counts.
func (g *gate) remembers(now time.Time) bool {
	if g.limit == nil {
		return false
	}
	last := max(g.rate.TAT, g.rate.LastAt)
	if n := len(g.rate.At); n > 0 {
		last = max(last, g.rate.At[n-1])
	}
	return last > 0 && last+g.limit.Period.Microseconds() >= now.UnixMicro()
}

// queueUp puts a pending run that has limits into the line of one of its gates,
// and announces it.
func (s *Store) queueUp(r *run, now time.Time) {
	g := s.limits.gate(admit.LineOf(r.usesNow()))
	s.standAt(r, g)
	line := r.laneID()
	for i := range r.uses {
		s.limits.byID[admit.LimitOf(r.uses[i].Gate)-1].lanes[line] = true
	}
	due := r.dueAt
	if due.Before(now) {
		due = now
	}
	s.limits.turns.add(line, g.id, due, now)
}

// standAt puts a run into the line of a gate.
func (s *Store) standAt(r *run, g *gate) {
	if g.key == "" && g.limit != nil {
		g.key = admit.KeyOf(g.id, g.limit.Secret, r.limits)
	}
	l := g.lines[r.laneID()]
	if l == nil {
		l = &line{}
		g.lines[r.laneID()] = l
	}
	l.add(r)
	g.waiting++
	r.gate = g
}

// stepOut takes a run out of the line of its gate.
func (s *Store) stepOut(r *run) {
	l := r.gate.lines[r.laneID()]
	i, found := slices.BinarySearchFunc(l.runs, r, order)
	if found {
		l.cut(i, i+1)
		r.gate.waiting--
	}
	if len(l.runs) == 0 {
		delete(r.gate.lines, r.laneID())
	}
	r.gate = nil
}

// usesNow are the gates of the run, with the permits it has.
func (r *run) usesNow() []admit.Use {
	uses := slices.Clone(r.uses)
	for i := range uses {
		use := &uses[i]
		use.Has = slices.ContainsFunc(r.permits, func(p *permit) bool { return p.gate.id == use.Gate && p.run == r })
	}
	return uses
}

// named reports, for uses with a named owner, who has the permit already.
func (s *Store) named(uses []admit.Use, now time.Time) {
	for i := range uses {
		if use := &uses[i]; use.Owner != (uuid.UUID{}) && use.Mode == store.LimitAcquire {
			g := s.limits.gates[use.Gate]
			use.Has = g != nil && g.ownedBy(use.Owner, now) != nil
		}
	}
}

// ownedBy is the permit of a named owner, or nil.
func (g *gate) ownedBy(owner uuid.UUID, now time.Time) *permit {
	for _, p := range g.permits {
		if p.until == store.UntilExpires && p.owner == owner && !admit.Expired(p.expiresAt, now) {
			return p
		}
	}
	return nil
}

// used is the sum of the weights of the permits; those that have expired go.
func (g *gate) used(now time.Time) (used int, freesAt time.Time) {
	g.permits = slices.DeleteFunc(g.permits, func(p *permit) bool { return admit.Expired(p.expiresAt, now) })
	for _, p := range g.permits {
		used += p.weight
		if !p.expiresAt.IsZero() && (freesAt.IsZero() || p.expiresAt.Before(freesAt)) {
			freesAt = p.expiresAt
		}
	}
	return used, freesAt
}

// grant gives a permit.
func (g *gate) grant(p *permit) {
	p.gate = g
	g.permits = append(g.permits, p)
	if p.run != nil {
		p.run.permits = append(p.run.permits, p)
	}
}

// release ends the permits of a run that end with the state it has now.
func (s *Store) release(r *run, now time.Time) {
	if len(r.permits) > 0 {
		s.releaseWhere(r, now, func(p *permit) bool { return admit.Ends(p.until, r.state) })
	}
	for i := range r.uses {
		use := &r.uses[i]
		if g := s.limits.gates[use.Gate]; g != nil && admit.GivesBack(use.Mode, r.state) {
			s.giveBack(g, use.Owner, now)
		}
	}
}

// releaseAll ends the permits of a run that is deleted, or begins again.
func (s *Store) releaseAll(r *run, now time.Time) {
	s.releaseWhere(r, now, func(p *permit) bool { return admit.EndsWithDeletion(p.until) })
}

func (s *Store) releaseWhere(r *run, now time.Time, ends func(*permit) bool) {
	r.permits = slices.DeleteFunc(r.permits, func(p *permit) bool {
		if !ends(p) {
			return false
		}
		p.gate.permits = slices.DeleteFunc(p.gate.permits, func(other *permit) bool { return other == p })
		s.announce(p.gate, now)
		return true
	})
}

// giveBack ends the permits of a named owner and reports whether there was one.
func (s *Store) giveBack(g *gate, owner uuid.UUID, now time.Time) bool {
	before := len(g.permits)
	g.permits = slices.DeleteFunc(g.permits, func(p *permit) bool { return p.until == store.UntilExpires && p.owner == owner })
	if len(g.permits) == before {
		return false
	}
	s.announce(g, now)
	return true
}

// announce says that a gate may have room, if a run waits for that.
func (s *Store) announce(g *gate, now time.Time) {
	if !g.awaited() || g.limit == nil {
		return
	}
	s.limits.turns.add(admit.LimitLine(g.limit.ID), g.id, now, now)
	s.limits.freed = true
}

// refund gives back the starts of a run that was handed back before its handler
// began.
func (s *Store) refund(r *run, now time.Time) {
	for i := range r.uses {
		g := s.limits.gate(r.uses[i].Gate)
		if g.limit != nil && g.limit.Rate() {
			g.refunds = append(g.refunds, admit.Refund{Weight: r.uses[i].Weight, ChargedAt: r.startedAt})
			s.announce(g, now)
		}
	}
}

// copy is enough of the limits to enqueue and to read.
func (l *limits) copy() limits {
	c := newLimits()
	for _, known := range l.byID {
		one := *known
		one.lanes, one.gates = maps.Clone(known.lanes), make(map[admit.GateID]*gate)
		c.byID, c.byName[one.Name] = append(c.byID, &one), &one
	}
	return c
}
