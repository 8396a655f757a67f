package durable

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// calls are the wake-ups that the poller has not answered yet.
type calls struct {
	mu       sync.Mutex
	anywhere bool                       // one named no lane
	lanes    map[store.LaneID]store.Due // those that are named, with one wake-up of each
	later    time.Duration              // monotonic clock when a run is to become due; zero: none is known of
	watches  map[store.LaneID]watching
}

// watching is a lane that the worker looks at again and again.
type watching struct {
	store.Due

	until time.Duration // monotonic clock
}

// add records a wake-up.
func (c *calls) add(due store.Due) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lanes == nil {
		c.lanes = map[store.LaneID]store.Due{}
	}
	c.lanes[due.Lane] = due
}

// watch has a lane looked at for a while, with every question.
func (c *calls) watch(due store.Due, until time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches == nil {
		c.watches = map[store.LaneID]watching{}
	}
	c.watches[due.Lane] = watching{due, until}
}

// addAnywhere records a wake-up that names no lane.
func (c *calls) addAnywhere() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.anywhere = true
}

// expect records that a run becomes due at an instant.
func (c *calls) expect(at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.later == 0 || at < c.later {
		c.later = at
	}
}

// called is what calls had to tell.
type called struct {
	anywhere bool
	lanes    map[store.LaneID]store.Due
	later    bool          // a run was to become due by now
	again    time.Duration // when to look again although nothing calls; zero: not
}

// take empties the calls.
func (c *calls) take(now time.Duration) (t called) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t = called{anywhere: c.anywhere, lanes: maps.Clone(c.lanes), later: c.later != 0 && c.later <= now}
	c.anywhere = false
	clear(c.lanes)
	if t.later {
		c.later = 0
	}
	for lane, w := range c.watches {
		if t.lanes == nil {
			t.lanes = map[store.LaneID]store.Due{}
		}
		t.lanes[lane] = w.Due
		if now >= w.until { // this is the last look
			delete(c.watches, lane)
		} else if t.again == 0 || w.Every < t.again {
			t.again = w.Every
		}
	}
	return t
}

// next is how long it is until a run is expected to become due; negative: none is.
func (c *calls) next(now time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.later == 0 {
		return -1
	}
	return max(c.later-now, 0)
}

// due records a wake-up. One that names a lane has been given to this worker and
// few others; without room for its runs it continues to the next.
func (w *Worker) due(due store.Due) {
	switch {
	case due.Lane == 0:
		w.wake()
		w.tellChanges()
	case due.In > 0:
		w.claimer.calls.expect(w.config.Elapsed() + due.In + due.After)
		w.poller.Call(due.In + due.After)
	default:
		w.claimer.calls.add(due)
		if due.For > 0 && due.After == 0 {
			w.claimer.calls.watch(due, w.config.Elapsed()+due.For)
		}
		w.poller.Call(due.After)
		if due.After == 0 && !w.hasRoom() {
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
		w.warn(context.Background(), "passing a wake-up on failed, others find out by polling", err)
	}
}

// share passes on that there is more to do in a lane than this worker has room for.
func (w *Worker) share(lane store.LaneID, due store.Due) {
	due = store.Due{Lane: lane, Names: due.Names, Runs: 2 * store.RunsPerWorker}
	if err := w.store.Publish(context.Background(), store.Signal{Kind: store.RunsDue, Due: due}); err != nil {
		w.warn(context.Background(), "passing a wake-up on failed, others find out by polling", err)
	}
}
