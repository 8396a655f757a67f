package postgres

import (
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// pace decides when a process notifies. Every notification wakes a connection of
// each worker, which costs the server more than a claim in vain; so a process that
// enqueues often has the worker that it wakes look again by itself for a while, and
// says nothing more of the same lanes until that is over. It then notifies of what
// came meanwhile, and another worker has its turn: whatever becomes of the first one,
// a run is notified of within watchFor. It is pure but for its mutex.
type pace struct {
	mu      sync.Mutex
	last    time.Duration // own clock of the last enqueue
	gap     time.Duration // between enqueues, lately
	sent    time.Duration // own clock of the last notification; zero: none
	until   time.Duration // own clock: some worker looks by itself until then
	watched map[store.LaneID]struct{}
}

const (
	hintPause = 5 * time.Millisecond // this process notifies at most once in it
	// watchFor is how long a worker looks by itself, and watchGap the most there may
	// be between two enqueues for that to be worth it.
	watchFor = 100 * time.Millisecond
	watchGap = 15 * time.Millisecond
	// watchMost is how many runs may come meanwhile before others are needed.
	watchMost = 64
	// A worker looks watchShare times in ten gaps, but neither oftener nor less often
	// than these.
	watchShare  = 14
	watchOften  = 6 * time.Millisecond
	watchSeldom = 9 * time.Millisecond
	// gapMost is what a gap counts at most, and gapPart the part of it that counts.
	gapMost = 100 * time.Millisecond
	gapPart = 8
)

// enqueued takes in that runs have been enqueued.
func (p *pace) enqueued(now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gap := gapMost
	if p.last != 0 {
		gap = min(now-p.last, gapMost)
	}
	if p.gap == 0 {
		p.gap = gap
	}
	p.gap += (gap - p.gap) / gapPart
	p.last = now
}

// rest is how long to wait before a notification of these.
func (p *pace) rest(now time.Duration, all []store.Due) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left(now, all)
}

// left is rest; p.mu is held.
func (p *pace) left(now time.Duration, all []store.Due) time.Duration {
	if p.sent == 0 {
		return 0
	}
	if len(all) > 0 && now < p.until && p.covers(all) {
		return p.until - now
	}
	return p.sent + hintPause - now
}

// covers tells whether who looks by itself finds all of these soon.
func (p *pace) covers(all []store.Due) bool {
	runs := 0
	for i := range all {
		runs += all[i].Runs
		if _, watched := p.watched[all[i].Lane]; !watched || all[i].In > 0 || all[i].Draw != 0 {
			return false
		}
	}
	return runs > 0 && runs <= watchMost
}

// may tells whether a notification of these may be sent now, and if so takes in that
// it is.
func (p *pace) may(now time.Duration, all []store.Due) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left(now, all) > 0 {
		return false
	}
	p.sent = now
	return true
}

// notified takes in that a notification is sent of these, and has the worker look by
// itself that gets it, when more are to be expected.
func (p *pace) notified(now time.Duration, all []store.Due) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = now
	for i := range all { // most of those that came under a watch have been found
		if _, watched := p.watched[all[i].Lane]; watched && all[i].Passed == 0 && all[i].Runs <= watchMost {
			all[i].Runs = 1
		}
	}
	if p.watched = nil; p.gap == 0 || p.gap > watchGap || len(all) == 0 {
		return
	}
	every := min(max(p.gap*10/watchShare, watchOften), watchSeldom)
	p.until, p.watched = now+watchFor, map[store.LaneID]struct{}{}
	for i := range all {
		if due := &all[i]; due.In == 0 && due.Passed == 0 {
			due.Every, due.For = every.Truncate(time.Millisecond), watchFor
			p.watched[due.Lane] = struct{}{}
		}
	}
}
