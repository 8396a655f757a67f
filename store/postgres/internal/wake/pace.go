package wake

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// pace throttles the notifications of a process. Every notification wakes one server process
// for each worker that listens, which costs the server more than an empty claim. So a process
// that enqueues often asks the worker that it notifies to watch for watchFor, and sends no
// further notification for the same lanes until then. If runs arrive in another lane, it
// notifies the same worker, which adds that lane to its watch: one worker watches, however
// many lanes there are.
//
// After the watch the process sends a notification for whatever arrived during it, and
// another worker has its turn. So each run is notified within watchFor, whatever becomes of
// the watcher. Runs that are due later are notified together, every laterFor.
//
// pace does no I/O and reads no clock; only its draws are random.
type pace struct {
	mu    sync.Mutex
	tempo tempo         // of enqueues
	sent  time.Duration // monotonic clock at the last notification; zero: none
	later time.Duration // the same, of runs that are due later
	watch watch
	known map[store.LaneID]notified // lanes in which runs arrived recently
}

// notified is the last wake-up that was sent for a lane.
type notified struct {
	store.Due

	at time.Duration // monotonic clock
}

// watch is a worker's watch, as far as this process knows. The zero value is none.
type watch struct {
	until time.Duration              // monotonic clock
	every time.Duration              // between two claims
	draw  uint32                     // that chose the worker
	lanes map[store.LaneID]store.Due // with the wake-ups that they were sent for; nil: no watch
}

func (w watch) lasts(now time.Duration) bool { return w.lanes != nil && now < w.until }

const (
	hintPause = 5 * time.Millisecond // at least this long between two notifications of a process
	// watchFor is how long a worker is asked to watch, and watchGap the longest average gap
	// between enqueues at which a watch is worth it.
	watchFor = 100 * time.Millisecond
	watchGap = 15 * time.Millisecond
	// watchMost is the number of runs of one watch beyond which more workers are notified.
	watchMost = 64
	// A watcher claims watchShare times in ten gaps, but at least watchOften and at most
	// watchSeldom apart.
	watchShare  = 14
	watchOften  = 6 * time.Millisecond
	watchSeldom = 9 * time.Millisecond
	// laterFor is the pause between two notifications of runs that are due later.
	laterFor = 100 * time.Millisecond
	// A watch begins with up to watchLanes lanes in which runs arrived within knownFor.
	watchLanes = 32
	knownFor   = time.Second
	// A tempo counts a longer gap as gapMost, and moves by a gapPart-th toward each new gap.
	gapMost = 100 * time.Millisecond
	gapPart = 8
)

// enqueued records an enqueue.
func (p *pace) enqueued(now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tempo.mark(now, 0)
}

// rest returns how long to wait before sending these wake-ups; zero or less: send them now.
func (p *pace) rest(now time.Duration, all []store.Due) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left(now, all)
}

// left is rest with p.mu held.
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

// covered returns a function that reports which of these need not be sent yet.
func (p *pace) covered(now time.Duration, all []store.Due) func(store.Due) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	copied := &pace{later: p.later, watch: p.watch}
	copied.watch.lanes = maps.Clone(p.watch.lanes)
	covers := copied.covers(now, all)
	return func(due store.Due) bool { return covers(due) > 0 }
}

// covers returns a function that says how long each of these may stay unsent. Runs in a
// watched lane may stay until the watch ends, unless there are too many for one worker. Runs
// that are due later than 2 × laterFor may stay until laterFor after the last notification of
// such runs. p.mu is held.
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

// may reports whether these may be sent now. If so, it counts that as a notification.
func (p *pace) may(now time.Duration, all []store.Due) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left(now, all) > 0 {
		return false
	}
	p.sent = now
	return true
}

// notified records that these are sent and draws the workers that they are for. If more runs
// are likely to arrive soon, they ask for a watch: of the current watcher while its watch
// lasts and it can keep up, else of another worker. Wake-ups that are due later, were passed
// on, or name no lane do not change the watch. notified returns the wake-ups to send, with
// the other lanes that a new watch includes.
func (p *pace) notified(now time.Duration, all []store.Due) []store.Due {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = now
	if p.known == nil {
		p.known = map[store.LaneID]notified{}
	}
	runs, fresh := 0, false
	for i := range all { // a watch, even one that has just ended, has found most of its runs
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

// allWatched reports whether a watch covers all of these.
func (p *pace) allWatched(now time.Duration, all []store.Due) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	covers := p.covers(now, all)
	return !slices.ContainsFunc(all, func(due store.Due) bool { return covers(due) <= 0 })
}

// watchedByAnother records that these were not sent, because some worker has announced that
// it watches their lanes for rest.
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

// withKnown adds the lanes in which runs arrived recently.
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

// opens reports whether a wake-up may begin a watch: its runs are due, and no worker was drawn for it.
func opens(due *store.Due) bool { return due.In == 0 && due.Passed == 0 && due.Draw == 0 }

// drawn gives the wake-ups that have no draw yet this one, which orders the workers.
func drawn(all []store.Due, draw uint32) []store.Due {
	for i := range all {
		if all[i].Draw == 0 {
			all[i].Draw = draw
		}
	}
	return all
}
