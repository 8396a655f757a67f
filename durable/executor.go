package durable

import (
	"slices"
	"sync"

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
type executors struct {
	mu      sync.Mutex
	queue   []*execution // claimed and not begun; first in, first out
	first   int          // index of the first in queue
	spare   int          // goroutines that wait for a run
	calling bool         // a goroutine is being woken and has not arrived yet
	closed  bool
	wake    sync.Cond
	all     sync.WaitGroup
}

// spareMost bounds the goroutines that wait for a run.
const spareMost = 256

func (e *executors) init() { e.wake.L = &e.mu }

// start has a run executed by one of the goroutines. One that has expired is not, and one
// that arrives when its worker has begun to drain is handed back.
func (e *executors) start(x *execution) {
	switch {
	case x.w.phase.Load() >= phaseDraining || x.call == nil:
		x.end(store.Outcome{Kind: store.HandedBack, Unbegun: true})
		return
	case x.run.Expired:
		x.end(store.Outcome{Kind: store.Cancellation, Error: "expired"})
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue = append(e.queue, x)
	e.call()
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
	for x := e.take(true); x != nil; x = e.take(false) {
		x.perform()
	}
}

// take returns the next run, waiting for one; nil ends the goroutine. called
// says that the caller was woken and has arrived.
func (e *executors) take(called bool) *execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		if called {
			e.calling = false
		}
		if e.first < len(e.queue) {
			return e.pop()
		}
		if e.closed || e.spare == spareMost {
			return nil
		}
		e.spare++
		e.wake.Wait()
		called = true // call has counted it out of spare
	}
}

// pop takes the first run, and has the others executed too.
func (e *executors) pop() *execution {
	x := e.queue[e.first]
	e.queue[e.first] = nil
	e.first++
	if e.first < len(e.queue) {
		e.call()
	}
	if e.first > len(e.queue)/2 { // the front half is gone: close up
		e.queue, e.first = slices.Delete(e.queue, 0, e.first), 0
	}
	return x
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
