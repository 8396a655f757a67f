package admit

import (
	"bytes"
	"cmp"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// gate is a gate during a decision.
type gate struct {
	*Gate
	parent  *gate // of a dynamic window: what all keys share; of that one, and of other kinds, itself or nil
	rate    Rate  // current
	changed bool  // rate has to be written
	unknown bool  // it, or the gate that its keys share, is busy
	taken   int   // places given in this decision
	freesAt time.Time
	live    map[GateID]int
	permit  int        // where the claim's permit is in Decision.Permits, from 1
	line    []*waiting // in its order, those included that have moved here
	mixed   bool       // lines wait in its round: see compareIn
	ghosts  []*waiting // entries of its round whose runs were not read
	next    int        // how far the line has been decided
	ahead   int        // places of those before it that stay
	walled  bool       // one before it waits for more than is free
	acted   bool       // the limit has refused one for good
	found   laneCounts // how many waiters of the worker's lanes were read
}

// waiting is a waiter during a decision.
type waiting struct {
	*Waiter
	lane  *Lane
	entry *entry
	uses  []Use
	gone  bool      // from the line: admitted, moved or refused
	moved bool      // it has come from the line of another gate, and is not decided about again
	asked bool      // the same, but it is decided about: it has come to take its turn
	short bool      // it stays only because the worker has no room
	again time.Time // when it is tried again, as it is held or a gate is busy; zero: neither

	home  GateID    // in the round of its gate: whose share it counts for
	since time.Time // since when that one waits
	rank  int       // how many runs of the same home come before it
}

// read takes over what was read.
func (g *gate) read(in *Gate, now int64) {
	g.Gate, g.freesAt = in, in.FreesAt
	if in.Limit == nil || in.Busy || !in.Limit.Rate() || in.Limit.Fault != "" {
		return
	}
	g.rate = in.Rate.current(in.Limit, now)
	g.changed = g.rate.TAT != in.Rate.TAT || len(g.rate.At) != len(in.Rate.At) ||
		len(g.rate.At) > 0 && g.rate.At[len(g.rate.At)-1] != in.Rate.At[len(in.Rate.At)-1]
	for _, back := range in.Refunds {
		g.rate, g.changed = g.rate.refund(in.Limit, back, now), true
	}
}

// laneCounts counts by lane. There are few lanes at one gate.
type laneCounts []laneCount

type laneCount struct {
	lane store.LaneID
	n    int
}

func (c *laneCounts) add(lane store.LaneID) {
	for i := range *c {
		if (*c)[i].lane == lane {
			(*c)[i].n++
			return
		}
	}
	*c = append(*c, laneCount{lane, 1})
}

func (c laneCounts) of(lane store.LaneID) int {
	for i := range c {
		if c[i].lane == lane {
			return c[i].n
		}
	}
	return 0
}

// unlimited reports whether the gate admits everything.
func (g *gate) unlimited() bool {
	return g.ID <= AllPermits || g.Limit != nil && (g.Limit.State == store.LimitOff || g.Limit.State == store.LimitRemoved)
}

// shared reports whether the gate is that of a key of a dynamic window.
func (g *gate) shared() bool {
	return g.Limit != nil && g.Limit.Kind == store.LimitDynamicWindow && Keyed(g.ID)
}

// closed reports whether the gate admits nothing, however much is free.
func (g *gate) closed(now time.Time) bool {
	return g.Limit == nil || g.Limit.State == store.LimitDraining || g.Limit.Max == 0 || g.Limit.Fault != "" || g.NotBefore.After(now)
}

// compareWaiters is the order of a gate's line over all lanes, where no line waits
// in its round.
func compareWaiters(a, b *waiting) int {
	return cmp.Or(cmp.Compare(b.lane.Priority, a.lane.Priority), a.DueAt.Compare(b.DueAt), compareRuns(a.Run, b.Run))
}

func compareRuns(a, b store.RunID) int { return bytes.Compare(a[:], b[:]) }

// grantee is the run that gets the permit of a gate in this decision.
type grantee struct {
	gate  GateID
	owner uuid.UUID
}

// has reports whether the use needs no place: the run, or its named owner, has the
// permit already.
func (d *deciding) has(use *Use) bool {
	return use.Free() || use.Owner != (uuid.UUID{}) && d.granted[grantee{use.Gate, use.Owner}]
}
