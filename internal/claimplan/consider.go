package claimplan

import (
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Basis is what a claim goes by.
type Basis int8

// The bases of a claim.
const (
	ByHeads    Basis = iota // the heads of the lanes
	AnyLane                 // a wake-up said that runs may be due in any lane
	NamedLanes              // wake-ups named the lanes in which runs are due
)

// unreadMost is from how many lanes a claim may be made without reading their heads.
const unreadMost = 64

// Consider makes the lanes candidates that wake-ups were about. It returns what the
// next claim goes by, and whether the heads have to be read before it. However many
// wake-ups come, they are each time the interval of SetHeads has passed.
func (p *Plan) Consider(woken Woken, now time.Duration) (by Basis, read bool) {
	by = p.basis(woken, now)
	if by != ByHeads && p.reach.below(now) {
		p.unmark()
	}
	p.follows = p.follows || woken.Later
	if read = by == ByHeads && (p.idle || p.outdated || now-p.headsAt >= headsEvery); !read {
		p.idle = p.nothingDue()
		p.missed = p.missed || by == ByHeads && (woken.Anywhere || woken.Later)
	}
	return by, read
}

func (p *Plan) basis(woken Woken, now time.Duration) Basis {
	known := p.call(woken.Lanes)
	if !known {
		p.outdated = true
	}
	switch {
	case known && woken.unseen() && now-p.headsAt < headsEvery:
		return NamedLanes
	case !p.idle || woken.Later:
		return ByHeads
	case woken.Anywhere && p.unbounded():
		return AnyLane
	case woken.Anywhere || len(woken.Lanes) == 0 || !known || len(woken.Lanes) > unreadMost || now >= p.headsDue:
		return ByHeads
	default:
		return NamedLanes
	}
}

// Insist makes those lanes candidates again, after the heads were read, that these do not show.
func (p *Plan) Insist(woken Woken) {
	if woken.unseen() {
		p.call(woken.Lanes)
	}
}

// call makes lanes candidates that a wake-up has named. It reports whether all are
// known, with a line of turns where runs have limits.
func (p *Plan) call(lanes map[store.LaneID]store.Due) (known bool) {
	known = true
	for id, due := range lanes {
		l, turns := p.byID[id], p.byLine[id]
		if l != nil && (due.Mixed || !due.Limited) {
			l.due = true
		}
		if turns != nil { // a limit's line, or a lane that has limited runs too
			turns.due = true
		}
		if turns != nil && turns.Lane == 0 { // an admission may have left turns on lanes for what the limit's line announced
			for _, lane := range p.byLine {
				lane.due = true
			}
		}
		known = known && (turns != nil || l != nil && !due.Limited)
	}
	return known
}

// unbounded makes every lane a candidate, for a worker that was woken and has not
// read the heads. It reports whether it may.
func (p *Plan) unbounded() bool {
	if len(p.lanes) == 0 || len(p.lanes) > unreadMost {
		return false
	}
	for _, l := range p.lanes {
		l.due = true
	}
	return true
}

// unmark lets claims take what is below the marks.
func (p *Plan) unmark() {
	for _, l := range p.lanes {
		l.mark = time.Time{}
	}
}

// Outdate has the heads read before the next claim.
func (p *Plan) Outdate() { p.outdated = true }

// Relax lets the worker rest without reading the heads again, after a claim that got
// all there was, where wake-ups will name the lanes in which there is more. It
// reports false while anything is known to be due: then the worker does not rest.
func (p *Plan) Relax() bool {
	if p.idle = p.nothingDue() && !p.missed; p.idle {
		p.outdated = false
	}
	return p.idle
}

// Sleep is how long to sleep when nothing can be claimed: until the next run is
// due, or, while an isolated run waits for room, until the heads are read again.
// Negative: until a wake-up or a poll.
func (p *Plan) Sleep() time.Duration {
	if len(p.isolated) > 0 && (p.next < 0 || p.next > headsEvery) {
		return headsEvery
	}
	return p.next
}

// SleepUnread is how long to sleep without having read the heads: until they are to
// be, or the first run is due that is known of. later is how long it is until wake-ups
// have a run become due; negative: none has.
func (p *Plan) SleepUnread(now, later time.Duration) time.Duration {
	next := p.headsDue - now
	if p.nextAt >= 0 {
		next = min(next, p.nextAt-now)
	}
	if later >= 0 {
		next = min(next, later)
	}
	return max(next, 0)
}
