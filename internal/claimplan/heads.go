package claimplan

import (
	"cmp"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/saturate"
	"github.com/durable-worker/durable-worker/store"
)

// headsEvery is how long the heads that were read are good for.
const headsEvery = time.Second

// leaveMost is how long at most the worker leaves a run that becomes due to others who know
// of it. A worker that has just taken runs, or expected one, also sees to what comes next:
// it leaves that only for so long that who was notified of it is first, leaveFollowed.
const (
	leaveMost     = 3 * time.Second
	leaveFollowed = 10 * time.Millisecond
)

// Reading is one reading of the heads.
type Reading struct {
	// From is where to read each lane from; nil: from its beginning.
	From map[store.LaneID]time.Time

	began time.Duration
	below bool
}

// Read says how to read the heads now. SetHeads or ReadFailed says how it ended.
func (p *Plan) Read(now time.Duration) Reading {
	reading := Reading{began: now, below: p.reach.below(now)}
	if !reading.below {
		reading.From = p.bounds()
	}
	return reading
}

// ReadFailed records that a reading of the heads had no answer. They are read before the
// next claim: the wake-ups that were to be answered by this reading are gone.
func (p *Plan) ReadFailed(reading Reading, now time.Duration) {
	p.outdated, p.idle = true, false
	if reading.below {
		p.reach.tookBelow(now, now-reading.began)
	}
}

// SetHeads records the heads as the store has returned them. However many wake-ups
// come, they are read again when the time given has passed since the reading began.
func (p *Plan) SetHeads(reading Reading, heads []store.Head, now, again time.Duration) {
	if reading.below {
		p.reach.tookBelow(now, now-reading.began)
	} else {
		p.reach.tookAbove(now - reading.began)
	}
	p.setHeads(heads)
	p.headsAt, p.headsDue, p.nextAt = reading.began, reading.began+again, -1
	if p.next >= 0 {
		p.nextAt = saturate.Add(now, p.next)
	}
	p.idle = p.nothingDue()
}

func (p *Plan) setHeads(heads []store.Head) {
	before, now := p.byID, clockOf(heads)
	p.lanes, p.isolated, p.byID = p.lanes[:0], p.isolated[:0], make(map[store.LaneID]*lane, len(heads))
	p.byLine = map[store.LineID]*lane{}
	p.outdated, p.missed, p.next = false, false, -1
	most := leaveMost
	if p.follows {
		most = leaveFollowed
	}
	p.follows = false
	for _, h := range heads {
		if in := saturate.Add(h.In, min(h.After, most)); h.Waiting && h.In > 0 && (p.next < 0 || in < p.next) {
			p.next = in
		}
		due := h.Waiting && h.In <= 0
		if h.Lane < 0 || h.Line < 0 {
			if due {
				p.isolated = append(p.isolated, h)
			}
			continue
		}
		l := &lane{Head: h, due: due}
		if h.Line != 0 {
			l.mark = h.DueAt
			p.lanes = append(p.lanes, l)
			p.byLine[h.Line] = l
			continue
		}
		switch known := before[h.Lane]; {
		case due:
			l.mark = h.DueAt
		case !now.IsZero():
			l.mark = now // nothing before it waits
		case known != nil:
			l.mark = known.mark
		}
		p.lanes = append(p.lanes, l)
		p.byID[h.Lane] = l
	}
	p.vain = !slices.ContainsFunc(p.lanes, func(l *lane) bool { return l.due && l.Line == 0 })
	slices.SortStableFunc(p.lanes, func(a, b *lane) int { return cmp.Compare(b.Priority, a.Priority) })
	slices.SortFunc(p.isolated, func(a, b store.Head) int { return a.DueAt.Compare(b.DueAt) })
}

// clockOf is the store's time when the heads were read; the zero time: they do
// not show it. A head that is further away than a duration can say does not.
func clockOf(heads []store.Head) time.Time {
	for _, h := range heads {
		if h.Waiting && h.In > saturate.LongestBack && h.In < saturate.Longest {
			return h.DueAt.Add(-h.In)
		}
	}
	return time.Time{}
}

// bounds are the marks of all lanes that have one.
func (p *Plan) bounds() map[store.LaneID]time.Time {
	bounds := make(map[store.LaneID]time.Time, len(p.lanes))
	for _, l := range p.lanes {
		if !l.mark.IsZero() && l.Line == 0 {
			bounds[l.Lane] = l.mark
		}
	}
	return bounds
}

// Lane returns the head of a lane as it was last read; nil: the lane is not known.
func (p *Plan) Lane(id store.LaneID) *store.Head {
	if l := p.byID[id]; l != nil {
		return &l.Head
	}
	return nil
}

// Isolated returns the lines of isolated runs whose first is due, oldest first. It
// is valid until the heads are read again.
func (p *Plan) Isolated() []store.Head { return p.isolated }

// IsolatedFor is how long the oldest isolated run has been due; there is one.
func (p *Plan) IsolatedFor(now time.Duration) time.Duration {
	return saturate.Add(now-p.headsAt, -max(p.isolated[0].In, -saturate.Longest))
}

// AnyDue reports whether an ordinary lane is due.
func (p *Plan) AnyDue() bool {
	for _, l := range p.lanes {
		if l.due {
			return true
		}
	}
	return false
}

// nothingDue reports whether neither a lane nor an isolated run is due.
func (p *Plan) nothingDue() bool { return !p.AnyDue() && len(p.isolated) == 0 }
