package durable

import (
	"context"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/internal/saturate"
	"github.com/durable-worker/durable-worker/store"
)

// due records a wake-up. One that names a lane was given to few workers; a worker without
// room for its runs passes it on to the next.
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
			w.claimer.wakeUps.Watch(due, saturate.Add(w.config.Elapsed(), due.For))
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

// share wakes other workers for a lane that has more runs than this worker has room for. If
// this worker has watched the lane, it hands the watch over.
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

// expect answers a wake-up when its runs are due. If it does not say exactly when that is, or
// too many wake-ups wait already, the heads are read instead, which say what is due next.
func (w *Worker) expect(due store.Due) {
	at := due
	if at.In = 0; due.After > 0 { // another worker answers first; this one passes nothing on
		at.After, at.Runs = 0, 0
	}
	now, claimed := w.config.Elapsed(), saturate.Add(due.In, due.After)
	wait := saturate.Add(claimed, due.In/clocksDiffer+dueMargin)
	if due.Runs == 0 || !w.claimer.expected.add(due, saturate.Add(now, due.In), wait, func() { w.due(at) }) {
		w.claimer.wakeUps.Expect(saturate.Add(now, claimed))
		w.poller.Call(claimed)
	}
}

// passExpected passes the wake-ups that still wait on to other workers, because this one stops.
func (w *Worker) passExpected() {
	for _, due := range w.claimer.expected.end(w.config.Elapsed()) {
		w.passOn(due)
	}
}

const (
	// A worker claims dueMargin, and the clocksDiffer-th part of the delay, after a run is
	// due, since the run is due by the clock of another machine.
	dueMargin    = time.Millisecond
	clocksDiffer = 2000
	// expectedMost bounds the wake-ups that wait for their runs to be due.
	expectedMost = 1000
)

// expected holds the wake-ups for runs that are due later. Other workers may not know of
// them, so a worker that stops passes them on. The zero value is empty.
type expected struct {
	mu    sync.Mutex
	all   map[*later]struct{}
	ended bool
}

// later is a wake-up that waits for its runs to be due.
type later struct {
	store.Due

	at    time.Duration // monotonic clock when its runs are due
	timer *time.Timer
}

// add calls do after wait. It reports false if it does not, because too many wake-ups wait or
// the worker stops.
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

// remove removes a wake-up and reports whether it was still waiting.
func (e *expected) remove(one *later) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, waits := e.all[one]
	delete(e.all, one)
	return waits
}

// end stops all timers and returns the wake-ups that still waited.
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
