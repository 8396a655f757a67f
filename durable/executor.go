package durable

import (
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/internal/protocol"
	"github.com/durable-worker/durable-worker/store"
)

// executors are the goroutines that execute handlers, as many as there are
// handlers that block and a few more.
//
// A goroutine that takes a run while others wait first wakes (or starts) one more
// goroutine, and only one is being woken at a time. Handlers that block therefore
// delay no other run: the goroutine that was woken takes the next one. Handlers
// that return immediately are executed by few goroutines, whose stacks have grown
// to what handlers need; growing a fresh stack costs more than a short handler.
//
// How many handlers execute is up to protocol.Begin: see shortage.go.
type executors struct {
	w *Worker

	mu       sync.Mutex
	queue    []*execution // claimed and not begun; first in, first out
	first    int          // index of the first in queue
	spare    int          // goroutines that wait for a run
	calling  bool         // a goroutine is being woken and has not arrived yet
	draining bool         // nothing begins any more
	closed   bool
	begins   protocol.Begin
	latency  time.Duration // the last one measured
	probing  bool          // a goroutine measures it
	wake     sync.Cond
	all      sync.WaitGroup
}

// spareMost bounds the goroutines that wait for a run.
const spareMost = 256

func (e *executors) init(w *Worker) {
	e.mu.Lock() // a health check may read already
	defer e.mu.Unlock()
	e.w, e.wake.L = w, &e.mu
	e.begins = protocol.Begin{Lease: w.config.Terms.Duration, Floor: beginFloor()}
}

// start has a run executed by one of the goroutines. One that has expired is not, and one
// that arrives when its worker has begun to drain is handed back.
func (e *executors) start(x *execution) {
	switch {
	case x.call == nil || !e.enqueue(x):
		x.handBack()
	case x.run.Expired:
		x.end(store.Outcome{Kind: store.Cancellation, Error: "expired"})
	}
}

// enqueue reports whether the run is taken care of, unless it has expired.
func (e *executors) enqueue(x *execution) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.draining {
		return false
	}
	if !x.run.Expired {
		e.queue = append(e.queue, x)
		e.call()
	}
	return true
}

// call wakes or starts a goroutine, unless one is on its way. e.mu is held.
func (e *executors) call() {
	if e.calling {
		return
	}
	e.calling = true
	if e.spare > 0 {
		e.spare--
		e.wake.Signal()
		return
	}
	e.all.Go(e.run)
}

// run executes runs until there are none and enough others wait for more. A
// handler that calls runtime.Goexit ends it.
func (e *executors) run() {
	x := e.take(nil)
	defer func() {
		if x != nil {
			e.gone(x)
		}
	}()
	for ; x != nil; x = e.take(x) {
		x.perform()
	}
}

// take returns the next run, waiting for one that may begin; nil ends the goroutine. last is
// the run that the caller has executed; nil says that the caller was woken and has arrived.
func (e *executors) take(last *execution) *execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	called := last == nil
	if !called {
		e.ended(last)
	}
	for {
		if called {
			e.calling = false
		}
		if e.waiting() > 0 {
			if e.begins.Open() {
				return e.pop()
			}
			e.probe()
		}
		if e.closed || e.spare == spareMost {
			return nil
		}
		e.spare++
		e.wake.Wait()
		called = true // call has counted it out of spare
	}
}

// ended counts a handler out that has returned, unless it had been given up. e.mu is held.
func (e *executors) ended(x *execution) {
	if resolution := x.resolution.Load(); resolution != resolvedLost && resolution != resolvedTimeout {
		e.begins.Ended()
	}
}

// gone counts out a handler that has ended its goroutine.
func (e *executors) gone(x *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended(x)
	e.next()
}

// gaveUp counts out a handler that was given up.
func (e *executors) gaveUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begins.Ended()
	e.next()
}

// next has the next run executed, if one waits that may begin. e.mu is held.
func (e *executors) next() {
	if e.waiting() == 0 {
		return
	}
	if e.begins.Open() {
		e.call()
	} else {
		e.probe()
	}
}

// waiting is how many runs have not begun. e.mu is held.
func (e *executors) waiting() int { return len(e.queue) - e.first }

// pop takes the first run, and has the others executed too.
func (e *executors) pop() *execution {
	x := e.queue[e.first]
	e.queue[e.first] = nil
	e.first++
	e.begins.Began()
	e.next()
	e.closeUp()
	return x
}

// closeUp moves the queue to the front when its front half is gone. e.mu is held.
func (e *executors) closeUp() {
	if e.first > len(e.queue)/2 {
		e.queue, e.first = slices.Delete(e.queue, 0, e.first), 0
	}
}

// drain hands back what has not begun. Nothing begins after that.
func (e *executors) drain() {
	e.mu.Lock()
	e.draining = true
	old := slices.Clone(e.queue[e.first:])
	e.queue, e.first = nil, 0
	e.mu.Unlock()
	for _, x := range old {
		x.handBack()
	}
}

// close ends the goroutines that wait, now and later.
func (e *executors) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.wake.Broadcast()
}

// poke wakes the goroutine that receives from a channel of one value, now or when it next
// receives. It never blocks.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
