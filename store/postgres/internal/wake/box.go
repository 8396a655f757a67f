package wake

import (
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// dueBox collects wake-ups that name their lanes until they are sent. It holds one for the
// runs of a lane that are due, and one for each slot in which more of its runs become due.
type dueBox struct {
	mu      sync.Mutex
	lanes   map[dueKey]boxed
	passed  []boxed // those with a draw of their own, and those passed on by another worker
	overrun bool    // there were more than mostDue
}

type dueKey struct {
	lane store.LaneID
	slot time.Duration // when its runs become due, in units of laterSlot; zero: they are due
}

// boxed is a wake-up in a box.
type boxed struct {
	store.Due

	at time.Duration // monotonic clock when its runs are due; zero: they are
}

// laterSlot is the time within which runs become due that share one wake-up, at the last instant.
const laterSlot = 10 * time.Millisecond

// roughly is the slot of wake-ups for instants that may be too early. The earliest counts.
const roughly = -1

func box(due store.Due, now time.Duration) (b boxed, key dueKey) {
	b, key = boxed{Due: due}, dueKey{lane: due.Lane}
	if due.In > 0 {
		b.at = now + due.In
		if key.slot = b.at/laterSlot + 1; due.Runs == 0 {
			key.slot = roughly
		}
	}
	return b, key
}

// unboxed returns the wake-up with the time that is left until its runs are due.
func (b *boxed) unboxed(now time.Duration) store.Due {
	due := b.Due
	if due.In > 0 {
		due.In = max(b.at-now, time.Millisecond)
	}
	return due
}

// MostDue bounds what a dueBox holds. Beyond it one wake-up that names no lane means all of them.
const MostDue = 2000

// add puts wake-ups into the box. It reports whether the sender has to be woken for them: most
// only add to the number of runs of a wake-up that the box holds already.
func (b *dueBox) add(all ...store.Due) (sooner bool) {
	now := lease.Running()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lanes == nil {
		b.lanes = map[dueKey]boxed{}
	}
	for i := range all {
		due, key := box(all[i], now)
		before, there := b.lanes[key]
		switch {
		case len(b.lanes)+len(b.passed) >= MostDue:
			sooner, b.overrun = sooner || !b.overrun, true
		case due.Draw != 0:
			sooner = true
			b.pass(due)
		case there:
			due.Due = due.And(before.Due)
			due.Runs += before.Runs
			if key.slot == roughly {
				sooner, due.at = sooner || due.at < before.at, min(due.at, before.at)
			} else {
				due.at = max(due.at, before.at)
			}
			sooner = sooner || before.Runs <= watchMost && due.Runs > watchMost || !before.Covers(due.Due)
			b.lanes[key] = due
		default:
			sooner, b.lanes[key] = true, due
		}
	}
	return sooner
}

// pass adds a wake-up for workers other than those that a new draw would choose. Of several
// for the same lane it keeps one. b.mu is held.
func (b *dueBox) pass(due boxed) {
	same := func(other boxed) bool { return other.Lane == due.Lane && other.Passed == 0 && other.In == 0 }
	if i := slices.IndexFunc(b.passed, same); i >= 0 && same(due) {
		due.Due = due.And(b.passed[i].Due)
		due.Runs = max(due.Runs, b.passed[i].Runs)
		b.passed[i] = due
		return
	}
	b.passed = append(b.passed, due)
}

// take removes and returns the wake-ups that do not stay; with nil, all of them.
func (b *dueBox) take(stays func(store.Due) bool) (all []store.Due, overrun bool) {
	now := lease.Running()
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, one := range b.lanes {
		if due := one.unboxed(now); stays == nil || !stays(due) {
			all = append(all, due)
			delete(b.lanes, key)
		}
	}
	for i := range b.passed {
		all = append(all, b.passed[i].unboxed(now))
	}
	overrun = b.overrun
	b.passed, b.overrun = nil, false
	return all, overrun
}

// any reports whether the box holds something.
func (b *dueBox) any() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.lanes)+len(b.passed) > 0 || b.overrun
}

// all returns what the box holds without removing it.
func (b *dueBox) all() (all []store.Due, overrun bool) {
	now := lease.Running()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.lanes {
		all = append(all, one.unboxed(now))
	}
	for i := range b.passed {
		all = append(all, b.passed[i].unboxed(now))
	}
	return all, b.overrun
}
