package durable

import (
	"context"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// due records a wake-up. One that names a lane has been given to this worker and
// few others; without room for its runs it continues to the next.
func (w *Worker) due(due store.Due) {
	switch {
	case due.Lane == 0:
		w.wake()
		poke(w.changes)
	case due.In > 0:
		w.expect(due)
	default:
		w.claimer.wakeUps.Add(due)
		if due.For > 0 && due.After == 0 {
			w.claimer.wakeUps.Watch(due, w.config.Elapsed()+due.For)
		}
		w.poller.Call(due.After)
		if due.After == 0 && due.Runs > 0 && !w.hasRoom() {
			w.passOn(due)
		}
	}
}

// hasRoom reports whether the worker would claim a run now.
func (w *Worker) hasRoom() bool {
	return w.phase.Load() == phaseWorking && w.poller.Room() > 0 && !w.claimer.aloneActive.Load() && !w.settler.full() &&
		!w.config.Process.reserved(w)
}

// passOn gives a wake-up to the next worker.
func (w *Worker) passOn(due store.Due) {
	due.Passed++
	if err := w.store.Publish(context.Background(), store.Signal{Kind: store.RunsDue, Due: due}); err != nil {
		w.warn(context.Background(), "wakeup.not_passed", "passing a wake-up on failed, others find out by polling", err)
	}
}

// share passes on that there is more to do in a lane than this worker has room for. If it
// has looked there by itself, another one is to.
func (w *Worker) share(lane store.LaneID, due store.Due) {
	every := due.Every
	due = store.Due{Lane: lane, Names: due.Names, Runs: 2 * store.RunsPerWorker, Limited: due.Limited, Mixed: due.Mixed}
	if w.claimer.wakeUps.Leave(lane) {
		due.Every, due.For = every, store.HandOver
	}
	if err := w.store.Publish(context.Background(), store.Signal{Kind: store.RunsDue, Due: due}); err != nil {
		w.warn(context.Background(), "wakeup.not_passed", "passing a wake-up on failed, others find out by polling", err)
	}
}

// expect has a wake-up answered when its runs are due. Where it does not say exactly when
// that is, or many are expected already, the heads are read, which say what is due next.
func (w *Worker) expect(due store.Due) {
	at := due
	if at.In = 0; due.After > 0 { // another one is to answer first: this one passes nothing on
		at.After, at.Runs = 0, 0
	}
	wait := due.In + due.In/clocksDiffer + dueMargin + due.After
	if due.Runs == 0 || !w.claimer.expected.add(due, w.config.Elapsed()+due.In, wait, func() { w.due(at) }) {
		w.claimer.wakeUps.Expect(w.config.Elapsed() + due.In + due.After)
		w.poller.Call(due.In + due.After)
	}
}

// passExpected gives the wake-ups that are still to come to other workers: this one stops.
func (w *Worker) passExpected() {
	for _, due := range w.claimer.expected.end(w.config.Elapsed()) {
		w.passOn(due)
	}
}

const (
	// dueMargin, and a part of the time until a run is due, is how long after it a worker
	// looks: the run is due by another machine's clock.
	dueMargin    = time.Millisecond
	clocksDiffer = 2000
	// expectedMost bounds the wake-ups that wait for their instant.
	expectedMost = 1000
)

// expected is the wake-ups for runs that are due later. Other workers may not know of
// them, so a worker that stops passes them on. The zero value has none.
type expected struct {
	mu    sync.Mutex
	all   map[*later]struct{}
	ended bool
}

// later is a wake-up that waits for its instant.
type later struct {
	store.Due

	at    time.Duration // monotonic clock when its runs are due
	timer *time.Timer
}

// add has a function called after a while. It reports false when it does not: there are
// too many, or the worker stops.
func (e *expected) add(due store.Due, at, wait time.Duration, do func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended || len(e.all) >= expectedMost {
		return false
	}
	if e.all == nil {
		e.all = map[*later]struct{}{}
	}
	one := &later{Due: due, at: at}
	one.timer = time.AfterFunc(wait, func() {
		if e.remove(one) {
			do()
		}
	})
	e.all[one] = struct{}{}
	return true
}

// remove reports whether a wake-up was still waiting.
func (e *expected) remove(one *later) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, waits := e.all[one]
	delete(e.all, one)
	return waits
}

// end stops all, and returns those that were still to come.
func (e *expected) end(now time.Duration) (left []store.Due) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	for one := range e.all {
		one.timer.Stop()
		if one.In = max(one.at-now, time.Millisecond); one.After == 0 {
			left = append(left, one.Due)
		}
	}
	clear(e.all)
	return left
}
