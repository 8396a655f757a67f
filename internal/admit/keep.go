package admit

import (
	"cmp"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// For how long places are kept for a lane whose workers do not come, and for how
// long the lane is then skipped. Isolated runs wait for a worker that executes
// nothing else, which takes longer.
const (
	KeepFor         = time.Second
	SkipFor         = 30 * time.Second
	KeepForIsolated = 20 * time.Second
	SkipForIsolated = 10*time.Minute - KeepForIsolated
)

func keepTime(lane store.LaneID) time.Duration {
	if lane < 0 {
		return KeepForIsolated
	}
	return KeepFor
}

func skipTime(lane store.LaneID) time.Duration {
	if lane < 0 {
		return SkipForIsolated
	}
	return SkipFor
}

// open reports whether the waiters of a lane have places in the gate's line: its
// queue is not paused, and places were not kept for it in vain of late.
func (d *deciding) open(g *gate, lane *Lane) bool {
	if lane.Paused {
		return false
	}
	expires, kept := d.kept[keptAt{g.ID, lane.ID}]
	return lane.Ours || !kept || expires.After(d.now) || !expires.Add(skipTime(lane.ID)).After(d.now)
}

// keepFor keeps the places of waiters of other lanes, and returns when the first
// ones are kept no more.
func (d *deciding) keepFor(g *gate, keepers []*waiting) (first time.Time) {
	for _, w := range keepers {
		at := keptAt{g.ID, w.Lane}
		expires, kept := d.kept[at]
		if !kept || !expires.After(d.now) {
			expires = d.now.Add(keepTime(w.Lane))
			d.kept[at] = expires
			d.Keep = append(d.Keep, Kept{Gate: g.ID, Lane: w.Lane, ExpiresAt: expires})
		}
		if first.IsZero() || expires.Before(first) {
			first = expires
		}
	}
	return first
}

// keep writes down that the worker has come for what was kept for its lanes. A
// lane of which it leaves waiters, as it has no room for them, is skipped for a
// while, so that a slow worker does not keep others waiting again and again.
func (a *arming) keep() {
	if len(a.kept) == 0 {
		return
	}
	var mine []Kept
	for at := range a.kept {
		if lane := a.lanes[at.lane]; at.gate == a.ID && lane != nil && lane.Ours {
			mine = append(mine, Kept{Gate: at.gate, Lane: at.lane})
		}
	}
	slices.SortFunc(mine, func(x, y Kept) int { return cmp.Compare(x.Lane, y.Lane) })
	for _, k := range mine {
		if a.short.of(k.Lane) > 0 {
			k.ExpiresAt = a.now
			a.Keep = append(a.Keep, k)
		} else {
			a.Unkeep = append(a.Unkeep, k)
		}
	}
}
