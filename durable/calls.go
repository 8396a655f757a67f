package durable

import (
	"context"

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
		w.claimer.wakeUps.Expect(w.config.Elapsed() + due.In + due.After)
		w.poller.Call(due.In + due.After)
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

// share passes on that there is more to do in a lane than this worker has room for.
func (w *Worker) share(lane store.LaneID, due store.Due) {
	due = store.Due{Lane: lane, Names: due.Names, Runs: 2 * store.RunsPerWorker, Limited: due.Limited, Mixed: due.Mixed}
	if err := w.store.Publish(context.Background(), store.Signal{Kind: store.RunsDue, Due: due}); err != nil {
		w.warn(context.Background(), "wakeup.not_passed", "passing a wake-up on failed, others find out by polling", err)
	}
}
