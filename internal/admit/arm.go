package admit

import (
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// shortest is how far ahead a turn of a rate is at least.
const shortest = time.Millisecond

// arm announces what room a gate has left for the waiters that stay, and keeps
// places for those of other workers' lanes.
//
// The first waiter of each lane gets a turn on its lane if what is left is enough
// for it, unless one before it in the gate's line waits for more than that. It is
// due now, or when the places end to be kept that others have before it. Where too
// little is left, the turn of a rate is on the limit's line and due when enough
// will be; a semaphore needs none, as the release of a permit inserts one.
func (d *deciding) arm(g *gate) {
	if g.Busy {
		return // the admission that has it arms it, and turns of its own were put back
	}
	d.armed = len(d.Turns)
	if g.unknown {
		for _, w := range g.line {
			d.turn(w.Lane, g.ID, d.now.Add(BusyAgain))
		}
		for _, ghost := range g.ghosts {
			if g.Entries > 0 {
				d.turn(ghost.Lane, g.ID, d.now.Add(BusyAgain))
			}
		}
		return
	}
	a := arming{deciding: d, gate: g, left: d.left(g)}
	for _, w := range g.line {
		if !w.gone {
			a.stay(w)
		}
	}
	a.unread()
	a.unreadRound()
	if a.lacking > 0 {
		d.later(g, a.lacking)
	}
	d.cancelOldest(g, a.beyond)
	a.keep()
}

// arming is the walk along what stays of a gate's line.
type arming struct {
	*deciding
	*gate
	left    int
	lacking int // the need of the first waiter for which too little is left; zero: none
	walled  bool
	others  int       // what waiters of other lanes need, before the one that is examined
	busy    int       // what those need that are tried again
	again   time.Time // when the first of those is
	ahead   int       // what all need that come before the one that is examined
	beyond  int       // what waiters need that may have others cancelled
	keepers []*waiting
	staying laneCounts // waiters that stay
	short   laneCounts // those of them that stay because the worker has no room
}

// stay examines a waiter that stays.
func (a *arming) stay(w *waiting) {
	need := a.need(a.gate, w)
	a.staying.add(w.Lane)
	switch {
	case !a.open(a.gate, w.lane):
		a.offer(w, need)
		return
	case need > a.left:
		if a.lacking == 0 {
			a.lacking = need
		}
		a.walled = true
	case a.walled:
		a.turn(LimitLine(LimitOf(a.ID)), a.ID, a.now.Add(BlockedAgain))
	case w.lane.Ours:
		a.ours(w, need)
	default:
		a.turn(w.Lane, a.ID, a.now)
		if a.others+need <= a.left {
			a.keepers = append(a.keepers, w)
		}
	}
	a.wants(w, need)
	a.ahead += need
	if !w.lane.Ours {
		a.others += need
	}
}

// offer announces room to a lane that keeps no others from starting: of a paused
// queue, or skipped for now.
func (a *arming) offer(w *waiting, need int) {
	switch {
	case need <= a.left:
		a.turn(w.Lane, a.ID, a.now)
	case !w.lane.Paused:
		if a.lacking == 0 {
			a.lacking = need
		}
	default:
		if at, ok := a.wake(a.gate, need); ok {
			a.turn(w.Lane, a.ID, at)
		}
	}
}

// ours announces room to a waiter of the worker's lanes.
func (a *arming) ours(w *waiting, need int) {
	switch {
	case a.others+need > a.left && len(a.keepers) > 0:
		a.turn(w.Lane, a.ID, a.keepFor(a.gate, a.keepers))
	case !w.again.IsZero():
		a.turn(w.Lane, a.ID, w.again)
	case a.others+a.busy+need > a.left && a.busy > 0:
		a.turn(w.Lane, a.ID, a.again)
	default:
		a.turn(w.Lane, a.ID, a.now)
	}
	if !w.again.IsZero() {
		if a.again.IsZero() || w.again.Before(a.again) {
			a.again = w.again
		}
		a.busy += need
	}
	if w.short {
		a.short.add(w.Lane)
	}
}

// wants notes what a waiter needs that has others cancelled.
func (a *arming) wants(w *waiting, need int) {
	use := w.useOf(a.ID)
	if use == nil || !w.lane.Ours || a.closed(a.now) || a.unlimited() || a.ahead+need <= a.left {
		return
	}
	if use.WhenFull == store.FullCancelOldest || use.WhenFull == store.FullDefault && a.Limit.Action() == store.FullCancelOldest {
		a.beyond += need
	}
}

// unread announces room to lines of which more waiters may follow than were read,
// where none of those that were read stays.
func (a *arming) unread() {
	for _, found := range a.found {
		if a.Depth == 0 || found.n < a.Depth || a.staying.of(found.lane) > 0 {
			continue
		}
		switch {
		case a.left > 0 || a.acted:
			a.turn(found.lane, a.ID, a.now)
		case a.lacking == 0:
			a.lacking = 1
		}
	}
}

// later announces when enough will be free of a limit for which no release
// inserts a turn.
func (d *deciding) later(g *gate, need int) {
	if at, ok := d.wake(g, need); ok {
		d.turn(LimitLine(LimitOf(g.ID)), g.ID, at)
	}
}

// wake is when a turn is due for so many places: as enough says, but a fast bucket
// gathers some starts first, and no turn of a rate is due immediately.
func (d *deciding) wake(g *gate, need int) (time.Time, bool) {
	l := g.Limit
	if l == nil || !l.Rate() || l.Fault != "" {
		return d.enough(g, need)
	}
	if l.Kind == store.LimitTokenBucket {
		need = max(need, bucketOf(l).gather())
	}
	at, ok := d.enough(g, need)
	if ok && at.Before(d.now.Add(shortest)) {
		at = d.now.Add(shortest)
	}
	return at, ok
}

// enough is the first instant at which so many places may be free without a
// release; false: there is none.
func (d *deciding) enough(g *gate, need int) (time.Time, bool) {
	l := g.Limit
	switch {
	case l == nil || l.State == store.LimitDraining || l.Max == 0 || l.Fault != "":
		return time.Time{}, false // ChangeLimit inserts turns
	case l.Rate():
		at := instant(d.nextFree(g, need))
		if at.Before(g.NotBefore) {
			at = g.NotBefore
		}
		return at, true
	case g.NotBefore.After(d.now):
		return g.NotBefore, true
	default:
		return g.freesAt, !g.freesAt.IsZero()
	}
}

// cancelOldest asks runs to end, those that have executed for the longest time
// first, until enough places are going to be free.
func (d *deciding) cancelOldest(g *gate, need int) {
	for i := range g.Executing {
		if g.Executing[i].Cancelled {
			need -= g.Executing[i].Weight
		}
	}
	for i := range g.Executing {
		if need <= 0 {
			return
		}
		if e := &g.Executing[i]; !e.Cancelled {
			d.Cancel = append(d.Cancel, e.Run)
			need -= e.Weight
		}
	}
}
