package admit

import (
	"github.com/durable-worker/durable-worker/store"
)

// Share is what one of several live keys gets of a dynamic window: an equal part,
// the remainder to those that have been live for the longest time, within least
// and most. rank counts from 0 in the order in which the keys became live.
func Share(capacity, keys, rank, least, most int) int {
	if keys <= 0 || rank >= keys {
		return 0
	}
	share := min(max(capacity/keys, least), most)
	if capacity/keys >= least && share < most && rank < capacity%keys {
		share++
	}
	return min(share, capacity)
}

// share is what a key may use of its window: of those that are live, by the age of
// that, then of those that wait, as keys that have a backlog leave room for a
// newcomer only where it counts.
func (d *deciding) share(g *gate) int {
	parent := g.parent
	if parent.live == nil {
		d.readLive(parent)
	}
	rank, live := parent.live[g.ID]
	keys := len(parent.live)
	if !live && keys >= store.MaxLimitKeys {
		return 0
	}
	for _, key := range parent.Waits {
		if _, known := parent.live[key]; known {
			continue
		}
		if key == g.ID && !live {
			rank, live = keys, true
		}
		keys++
	}
	if !live {
		rank, keys = keys, keys+1
	}
	keys = min(keys, store.MaxLimitKeys)
	l := g.Limit
	return Share(l.Max, keys, min(rank, keys-1), l.Least, l.Most)
}

// readLive numbers the live keys of a limit, the gate without a key being theirs.
func (d *deciding) readLive(parent *gate) {
	parent.live = make(map[GateID]int, len(parent.Live))
	for _, key := range parent.Live {
		if key.LastAt+parent.Limit.Period.Microseconds() > d.us {
			parent.live[key.Gate] = len(parent.live)
		}
	}
}

// enliven makes a key live that has just used its window.
func (d *deciding) enliven(g *gate) {
	if g.parent.live == nil {
		d.readLive(g.parent)
	}
	if _, live := g.parent.live[g.ID]; !live {
		g.parent.live[g.ID] = len(g.parent.live)
		g.rate.Since = d.us
	}
	g.rate.LastAt = d.us
}

// nextFree is the first instant at which so many starts may be free.
func (d *deciding) nextFree(g *gate, need int) int64 {
	next := g.rate.next(g.Limit, d.most(g), need, d.us)
	if !g.shared() {
		return next
	}
	// A share rises when another key is live no more.
	period := g.Limit.Period.Microseconds()
	for _, key := range g.parent.Live {
		if ends := key.LastAt + period; ends > d.us {
			next = min(next, ends)
		}
	}
	return next
}
