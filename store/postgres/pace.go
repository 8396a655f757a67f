package postgres

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// pace decides when a process notifies, and of whom. Every notification wakes a connection
// of each worker, which costs the server more than a claim in vain; so a process that
// enqueues often has the worker that it wakes look again by itself for a while, a watch,
// and says nothing more of the same lanes until that is over. Of a lane that comes meanwhile
// it notifies the same worker, which then looks in both: one looks, however many lanes
// there are. After the watch it notifies of what came during it, and another worker has
// its turn: whatever happens to the first one, a run is notified of within watchFor. Of
// runs that are due later it notifies together. It is pure but for its mutex and its draws.
type pace struct {
	mu    sync.Mutex
	tempo tempo         // of enqueues
	sent  time.Duration // monotonic clock of the last notification; zero: none
	later time.Duration // monotonic clock of the last notification of runs that are due later; zero: none
	watch watch
	known map[store.LaneID]notified // lanes that runs came in lately
}

// notified is what was last notified of a lane.
type notified struct {
	store.Due

	at time.Duration // monotonic clock
}

// watch is that some worker looks by itself.
type watch struct {
	until time.Duration              // monotonic clock
	every time.Duration              // between two looks
	draw  uint32                     // by which the worker was chosen
	lanes map[store.LaneID]store.Due // by what they were notified of; nil: no worker looks
}

func (w watch) lasts(now time.Duration) bool { return w.lanes != nil && now < w.until }

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
	// laterFor is how far apart notifications are of runs that are due later.
	laterFor = 100 * time.Millisecond
	// watchLanes is in how many lanes it looks, from the beginning, in which runs came
	// within knownFor.
	watchLanes = 32
	knownFor   = time.Second
	// gapMost is what a gap counts at most, and gapPart the part of it that counts.
	gapMost = 100 * time.Millisecond
	gapPart = 8
)

// enqueued records that runs have been enqueued.
func (p *pace) enqueued(now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tempo.mark(now, 0)
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
	covers, rest := p.covers(now, all), time.Duration(0)
	for i := range all {
		may := covers(all[i])
		if may <= 0 {
			rest = 0
			break
		}
		if rest == 0 || may < rest {
			rest = may
		}
	}
	if rest > 0 {
		return rest
	}
	return p.sent + hintPause - now
}

// covered returns which of these need not be sent yet.
func (p *pace) covered(now time.Duration, all []store.Due) func(store.Due) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	copied := &pace{later: p.later, watch: p.watch}
	copied.watch.lanes = maps.Clone(p.watch.lanes)
	covers := copied.covers(now, all)
	return func(due store.Due) bool { return covers(due) > 0 }
}

// covers returns how long each of these may stay: as long as the worker finds it that looks
// by itself, unless there is work for more than one, and where runs are due later than in
// laterFor, so long after the last notification of such. p.mu is held.
func (p *pace) covers(now time.Duration, all []store.Due) func(store.Due) time.Duration {
	runs, w := 0, p.watch
	for i := range all {
		if all[i].In == 0 {
			runs += all[i].Runs
		}
	}
	if !w.lasts(now) || runs > watchMost {
		w.lanes = nil
	}
	return func(due store.Due) time.Duration {
		watched, is := w.lanes[due.Lane]
		switch {
		case due.Draw != 0:
			return 0
		case due.In > 2*laterFor && p.later != 0:
			return p.later + laterFor - now
		case due.In == 0 && is && watched.Covers(due) && due.Runs > 0:
			return w.until - now
		}
		return 0
	}
}

// may reports whether a notification of these may be sent now, and if so records that
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

// notified records that a notification is sent of these and draws whom it is for. When
// more are to be expected, the worker that gets it looks by itself: the one that does
// already, or another after a watch and for more runs than that one may find. What is due
// later, was passed on or is of no lane leaves a watch as it is. It returns them with the
// lanes that the worker is to look in besides.
func (p *pace) notified(now time.Duration, all []store.Due) []store.Due {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = now
	if p.known == nil {
		p.known = map[store.LaneID]notified{}
	}
	runs, fresh := 0, false
	for i := range all { // most of those that came under a watch, which may just be over, have been found
		due := &all[i]
		if watched, is := p.watch.lanes[due.Lane]; is && now < p.watch.until+hintPause && watched.Covers(*due) && opens(due) && due.Runs <= watchMost {
			due.Runs = 1
		}
		if due.In > 0 {
			p.later = now
		} else {
			runs += due.Runs
		}
		fresh = fresh || opens(due)
	}
	draw := newDraw()
	switch often := p.tempo.often(); {
	case !fresh:
	case often && p.watch.lasts(now) && runs <= watchMost:
		draw = p.watch.draw
	case often:
		p.watch = watch{until: now + watchFor, every: p.tempo.every(), draw: draw, lanes: map[store.LaneID]store.Due{}}
		all = p.withKnown(now, all)
	default:
		p.watch = watch{}
	}
	for i := range all {
		if due := &all[i]; opens(due) && p.watch.lasts(now) {
			due.Every, due.For = p.watch.every, p.watch.until-now
			if before, is := p.watch.lanes[due.Lane]; is {
				due.Limited, due.Mixed = due.And(before).Limited, due.And(before).Mixed
			}
			p.watch.lanes[due.Lane] = *due
			if due.Runs > 0 {
				p.known[due.Lane] = notified{*due, now}
			}
		}
	}
	return drawn(all, draw)
}

// watches reports whether a worker looks by itself in the lanes of all of these.
func (p *pace) allWatched(now time.Duration, all []store.Due) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	covers := p.covers(now, all)
	return !slices.ContainsFunc(all, func(due store.Due) bool { return covers(due) <= 0 })
}

// elsewhere records that these were not notified, because some worker looks in their lanes
// by itself for so long.
func (p *pace) watchedByAnother(now, rest time.Duration, all []store.Due) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := now + rest; !p.watch.lasts(now) {
		p.watch = watch{until: until, draw: newDraw(), lanes: map[store.LaneID]store.Due{}}
	} else {
		p.watch.until = min(p.watch.until, until)
	}
	for i := range all {
		due := all[i]
		if before, is := p.watch.lanes[due.Lane]; is {
			due = due.And(before)
		}
		p.watch.lanes[due.Lane] = due
	}
}

// withKnown adds the lanes that runs have come in lately.
func (p *pace) withKnown(now time.Duration, all []store.Due) []store.Due {
	named := map[store.LaneID]bool{}
	for i := range all {
		named[all[i].Lane] = true
	}
	for lane, last := range p.known {
		switch {
		case now-last.at > knownFor:
			delete(p.known, lane)
		case len(named) < watchLanes && !named[lane]:
			named[lane], all = true, append(all, store.Due{Lane: lane, Names: last.Names, Limited: last.Limited, Mixed: last.Mixed})
		}
	}
	return all
}

// opens reports whether a wake-up is one that a worker may look by itself for.
func opens(due *store.Due) bool { return due.In == 0 && due.Passed == 0 && due.Draw == 0 }

// drawn has those wake-ups that are for no worker yet go to the workers that a draw chooses.
func drawn(all []store.Due, draw uint32) []store.Due {
	for i := range all {
		if all[i].Draw == 0 {
			all[i].Draw = draw
		}
	}
	return all
}
