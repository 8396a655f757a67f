package lock

import (
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// hold notes a grant of the store.
func (l *Locker) hold(g Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.holdings) >= l.sweepAt {
		l.sweep()
		l.sweepAt = max(64, 2*len(l.holdings))
	}
	l.holdings[g.Claim] = &holding{
		name: g.Name, since: g.Asked, until: g.Terms.Deadline(g.Asked), longest: g.Terms.Longest,
	}
}

// sweep forgets grants that ran out without being released: their holders do
// not care.
func (l *Locker) sweep() {
	now := l.config.Elapsed()
	for claim, h := range l.holdings {
		if !h.local && h.until < now {
			delete(l.holdings, claim)
		}
	}
}

// holdLocal notes a local grant when fewer than the cap are held in this
// process, grants of the store included while they are valid.
func (l *Locker) holdLocal(g Grant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := 0
	for _, h := range l.holdings {
		if h.name == g.Name && (h.local || g.Asked < h.until) {
			held++
		}
	}
	if held >= g.Terms.Slots {
		return false
	}
	l.holdings[g.Claim] = &holding{name: g.Name, since: g.Asked, longest: g.Terms.Longest, local: true}
	return true
}

// drop forgets a grant and returns what was known of it, or nil.
func (l *Locker) drop(g Grant) *holding {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.holdings[g.Claim]
	delete(l.holdings, g.Claim)
	return h
}

// split separates the claims of the store from the local ones.
func (l *Locker) split(claims []lease.ClaimID) (stored, local []lease.ClaimID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, claim := range claims {
		if h := l.holdings[claim]; h != nil && h.local {
			local = append(local, claim)
		} else {
			stored = append(stored, claim)
		}
	}
	return stored, local
}

// renewed moves the deadlines of what was renewed and forgets the rest.
func (l *Locker) renewed(asked, renewed []lease.ClaimID, at, d time.Duration) {
	renewedNow := make(map[lease.ClaimID]bool, len(renewed))
	for _, claim := range renewed {
		renewedNow[claim] = true
	}
	var lost []*holding
	l.mu.Lock()
	for _, claim := range asked {
		switch h := l.holdings[claim]; {
		case h == nil:
		case renewedNow[claim]:
			h.until = max(h.until, lease.Terms{Duration: d}.Deadline(at)) // a later renewal may have been answered first
		default:
			delete(l.holdings, claim)
			lost = append(lost, h)
		}
	}
	l.mu.Unlock()
	for _, h := range lost {
		l.config.Logger.Warn("lock lost", "event", "lock.lost", "lock", h.name, "held", (at - h.since).String())
		report(l.config.Hooks.Ended, End{Name: h.name, Held: at - h.since, Lost: true})
	}
}

// warnOld warns once of each grant that is held longer than expected.
func (l *Locker) warnOld(now time.Duration) {
	var old []*holding
	l.mu.Lock()
	for _, h := range l.holdings {
		if h.longest > 0 && !h.warned && now-h.since > h.longest+h.longest/2 {
			h.warned = true
			old = append(old, h)
		}
	}
	l.mu.Unlock()
	for _, h := range old {
		l.config.Logger.Warn("lock held longer than expected", "event", "lock.overdue", "lock", h.name, "held", (now - h.since).String(), "longest", h.longest.String())
		report(l.config.Hooks.Ended, End{Name: h.name, Held: now - h.since, Overdue: true})
	}
}
