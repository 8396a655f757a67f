package admit

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Decide decides what an admission does with what it has read.
//
// The places of a gate belong to the first waiters of its line over all lanes, by
// priority, due instant and id. A waiter of the worker's own lanes is admitted if
// it has a place there, and room in all its other gates: all of them or none. One
// that is too heavy for what is free blocks those behind it. Higher priorities go
// first. Within one, gates get one run each before any gets a second, so that a
// key with many waiters does not delay the others.
//
// Runs that need the same gates, two or more, wait in the line of their set. If a
// gate refuses the first one, the line waits in the round of that gate: see Entry.
// There keys take turns, by priority, then one run of each key before a second of
// any, the key first that has waited longest. Other waiters that another gate
// refuses move to the line of that gate. One of whose gates is busy stays, and is
// tried again after BusyAgain.
//
// Places of waiters in lanes that the worker does not serve are kept for them for
// a second (see Kept). What room is left is announced by turns: a waiter that
// could start and was not admitted always has one in the answer.
func Decide(in *Input) Decision {
	d := newDeciding(in)
	for _, d.floor = range priorities(in.Lanes) {
		for more := true; more && d.room > 0; {
			more = false
			for _, g := range d.gates {
				more = d.admitNext(g) || more
			}
		}
	}
	d.floor = math.MinInt
	for _, g := range d.gates {
		d.admitNext(g) // without room: limits act on those beyond their places
		d.arm(g)
	}
	d.conclude()
	return d.Decision
}

// priorities are those of the worker's lanes, the highest first.
func priorities(lanes []Lane) (all []int) {
	for i := range lanes {
		if lanes[i].Ours {
			all = append(all, lanes[i].Priority)
		}
	}
	slices.SortFunc(all, func(a, b int) int { return cmp.Compare(b, a) })
	return slices.Compact(all)
}

// deciding is a decision in the making.
type deciding struct {
	Decision
	now     time.Time
	us      int64     // now
	end     time.Time // of the rounds that were read: see readRounds
	room    int
	floor   int // the priority from which on waiters are decided about
	gates   []*gate
	byID    map[GateID]*gate
	lanes   map[store.LaneID]*Lane
	kept    map[keptAt]time.Time
	granted map[grantee]bool
	armed   int // where the turns of the gate begin that is armed
	lines   map[lineAt]*entry
	entries []*entry // the same, as they were found
}

type keptAt struct {
	gate GateID
	lane store.LaneID
}

func newDeciding(in *Input) *deciding {
	d := &deciding{
		now: in.Now, us: micros(in.Now), room: in.Room,
		gates:   make([]*gate, 0, len(in.Gates)),
		byID:    make(map[GateID]*gate, len(in.Gates)),
		lanes:   make(map[store.LaneID]*Lane, len(in.Lanes)),
		kept:    map[keptAt]time.Time{},
		granted: map[grantee]bool{},
		lines:   map[lineAt]*entry{},
	}
	for i := range in.Lanes {
		d.lanes[in.Lanes[i].ID] = &in.Lanes[i]
	}
	for _, k := range in.Kept {
		d.kept[keptAt{k.Gate, k.Lane}] = k.ExpiresAt
	}
	gates := make([]gate, len(in.Gates))
	for i := range in.Gates {
		if g := &gates[i]; d.byID[in.Gates[i].ID] == nil {
			g.read(&in.Gates[i], d.us)
			d.gates = append(d.gates, g)
			d.byID[g.ID] = g
		}
	}
	d.readRounds(in.Rounds)
	line, plain := make([]waiting, len(in.Waiters)), make([]Use, len(in.Waiters))
	for i := range in.Waiters {
		d.stand(&in.Waiters[i], &line[i], plain[i:i+1:i+1])
	}
	for _, g := range d.gates {
		g.parent = d.byID[Parent(g.ID)]
		g.unknown = g.Busy || g.shared() && (g.parent == nil || g.parent.Busy)
		g.sort()
	}
	return d
}

// stand puts a waiter that is due into the line of its gate. plain is room for the
// use of one that has one gate and no terms.
func (d *deciding) stand(w *Waiter, p *waiting, plain []Use) {
	lane := d.lane(w.Lane)
	e := d.entryOf(w.Gate, lane)
	g := d.byID[e.at]
	if g == nil || g.Busy || w.DueAt.After(d.now) || e.elsewhere() {
		return
	}
	*p = waiting{Waiter: w, lane: lane, entry: e, uses: w.Uses}
	e.note(p)
	if len(w.Uses) == 0 {
		plain[0] = Use{Gate: w.Gate, Weight: 1}
		p.uses = plain
	}
	if w.Unread {
		p.again = d.now.Add(BlockedAgain)
	}
	if w.Held || IsSet(w.Gate) && w.Uses == nil && !w.Unread { // what it needs is not known
		p.again = d.now.Add(HeldAgain)
	}
	g.line = append(g.line, p)
	if e.at != w.Gate {
		return
	}
	if lane.Ours {
		g.found.add(w.Lane)
	}
}

// admitNext admits the next waiter of a gate's line that may start, and moves or
// refuses those before it that may not. It reports whether it has admitted one.
// Without room it admits none.
func (d *deciding) admitNext(g *gate) bool {
	for g.next < len(g.line) {
		w := g.line[g.next]
		if w.lane.Priority < d.floor {
			return false
		}
		need := d.need(g, w)
		fits := need == 0 || !g.walled && g.ahead+need <= d.left(g)
		switch {
		case g.unknown:
		case w.gone || !d.open(g, w.lane):
		case !w.lane.Ours || w.moved || !w.again.IsZero():
			g.ahead += need
		case !fits:
			g.walled = !d.refuse(w, g, g) || g.walled
		case d.room == 0:
			w.short = true
			g.ahead += need
		case d.admit(g, w):
			g.next++
			return true
		case !w.gone:
			g.ahead += need
		}
		g.next++
	}
	return false
}

// admit admits a waiter that has its place in the line of a gate, if it has room
// in its other gates. Otherwise it moves, is refused, or stays to be tried again.
func (d *deciding) admit(g *gate, w *waiting) bool {
	var busy bool
	for i := range w.uses {
		use := &w.uses[i]
		if use.Gate == g.ID || d.has(use) {
			continue
		}
		other := d.byID[use.Gate]
		if other == nil || other.unknown {
			busy = true
			continue
		}
		if d.need(other, w)+d.before(other, w) > d.left(other) {
			d.refuse(w, g, other)
			return false
		}
		if w.parks(other.ID) && d.behind(other, w) {
			d.park(w.entry, g, other)
			return false
		}
	}
	if busy {
		w.again = d.now.Add(BusyAgain)
		return false
	}
	for i := range w.uses {
		if use := &w.uses[i]; use.Gate == g.ID {
			d.grant(g, w, use)
		} else {
			d.grant(d.byID[use.Gate], w, use)
		}
	}
	w.gone = true
	w.entry.serve(g, len(d.Admitted))
	d.room--
	d.Admitted = append(d.Admitted, Admitted{*w.Waiter})
	return true
}

// before is what waiters in the line of a gate need there that come before one of
// another line.
func (d *deciding) before(g *gate, w *waiting) (need int) {
	w = d.asIn(g, w)
	for _, ghost := range g.ghosts {
		if ghost.Gate != w.Gate && g.compareIn(ghost, w) < 0 && d.open(g, ghost.lane) {
			need++
		}
	}
	for _, other := range g.line {
		if g.compareIn(other, w) >= 0 {
			break
		}
		if !other.gone && other.Run != w.Run && d.open(g, other.lane) {
			need += d.need(g, other)
		}
	}
	return need
}

// need is how many places of a gate a waiter takes: as many as the gate has where
// it is heavier than that.
func (d *deciding) need(g *gate, w *waiting) int {
	for i := range w.uses {
		if use := &w.uses[i]; use.Gate == g.ID {
			if d.has(use) {
				return 0
			}
			return max(min(use.Weight, d.most(g)), 1)
		}
	}
	return 0
}

// left is how many places a gate has free now.
func (d *deciding) left(g *gate) int {
	switch l := g.Limit; {
	case g.unlimited():
		return math.MaxInt32
	case g.closed(d.now):
		return 0
	case l.Rate():
		return g.rate.free(l, d.most(g), d.us)
	default:
		return max(l.Max-g.Used-g.taken, 0)
	}
}

// most is how many places the gate has: of a key of a dynamic window its share.
func (d *deciding) most(g *gate) int {
	switch {
	case g.unlimited():
		return math.MaxInt32
	case g.Limit == nil:
		return 0
	case g.shared():
		return d.share(g)
	default:
		return g.Limit.Capacity()
	}
}

// conclude writes down what has changed in all.
func (d *deciding) conclude() {
	for i := range d.Permits {
		slices.SortFunc(d.Permits[i].Runs, compareRuns)
	}
	for _, g := range d.gates {
		if g.changed {
			d.Rates = append(d.Rates, GateRate{Gate: g.ID, Rate: g.rate})
		}
	}
	d.concludeRounds()
}
