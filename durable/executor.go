package durable

import (
	"context"
	"runtime"
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
// How many handlers execute is up to protocol.Begin: while the process is short of CPU, fewer.
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

const (
	// beginPerCPU is how many handlers for each CPU begin unless heartbeats can hardly arrive.
	beginPerCPU = 4
	// beginPause is the time between two measurements while runs wait to begin, and
	// claimPause is the time before a worker that is short of CPU looks whether it may claim.
	beginPause = 10 * time.Millisecond
	claimPause = 20 * time.Millisecond
	// latencyEvery bounds the time between two measurements while none wait.
	latencyEvery = time.Second
)

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

// ended counts a handler out that has returned. e.mu is held.
func (e *executors) ended(x *execution) {
	if resolution := x.resolution.Load(); resolution == resolvedLost || resolution == resolvedTimeout {
		e.begins.Returned()
	} else {
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

// gaveUp counts a handler as one that was given up.
func (e *executors) gaveUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begins.GivenUp()
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

// beginFloor is how many handlers begin unless heartbeats can hardly arrive.
func beginFloor() int { return beginPerCPU * runtime.GOMAXPROCS(0) }

// yielding measures the scheduling latency: the time until all goroutines that could
// continue have had a turn. A goroutine that sleeps would measure less: Go lets one whose
// timer has fired continue before others, but not one that the network has answered.
func yielding(elapsed func() time.Duration) func() time.Duration {
	return func() time.Duration {
		began := elapsed()
		runtime.Gosched()
		return elapsed() - began
	}
}

// probe has the latency measured, on which it depends whether more may begin. e.mu is held.
func (e *executors) probe() {
	if !e.probing && !e.closed {
		e.probing = true
		e.all.Go(e.measureWaiting)
	}
}

// measureWaiting measures the latency, and again as long as runs wait that may not begin.
// Those that have waited for long are handed back.
func (e *executors) measureWaiting() {
	for {
		effects := e.measure()
		old, done := e.decide(effects)
		for _, x := range old {
			x.handBack()
		}
		if done {
			return
		}
		time.Sleep(beginPause) //nolint:forbidigo // it is short: a drain may wait for it
	}
}

// measure takes one sample, and says so if it shows that the worker is short of CPU.
func (e *executors) measure() protocol.BeginEffects {
	latency, now := e.w.config.SchedulingLatency(), e.w.config.Elapsed()
	e.mu.Lock()
	e.latency, e.begins.Floor = latency, beginFloor()
	waiting, executing := e.waiting(), e.begins.Executing()
	effects := e.begins.Sampled(protocol.BeginSample{At: now, Latency: latency, Waiting: waiting})
	e.mu.Unlock()
	if effects.Tell {
		e.w.config.Logger.Warn("short of CPU: handlers compute, and heartbeats may come too late. Lower DURABLE_MAX_CONCURRENT_RUNS, or give the process more CPU",
			"event", "worker.short_of_cpu", "scheduling_latency", latency.Round(time.Millisecond).String(), "executing", executing, "waiting", waiting,
			"max_concurrent_runs", e.w.config.MaxConcurrentRuns, "cpus", runtime.GOMAXPROCS(0))
	}
	return effects
}

// decide has more begin if they may, and else takes those that have waited for too long.
func (e *executors) decide(effects protocol.BeginEffects) (old []*execution, done bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting() == 0 || e.begins.Open() {
		e.probing = false
		e.next()
		return nil, true
	}
	waiting := e.queue[e.first:]
	n := 0
	for n < len(waiting) && waiting[n].claim.asked < effects.HandBack {
		n++
	}
	old = slices.Clone(waiting[:n])
	clear(waiting[:n])
	e.first += n
	e.closeUp()
	return old, false
}

// room is how many of n runs may be claimed: no more than can begin soon.
func (e *executors) room(n int) int {
	now := e.w.config.Elapsed()
	e.mu.Lock()
	defer e.mu.Unlock()
	room := e.begins.Room(now, e.waiting())
	if room < n {
		e.probe()
	}
	return min(n, room)
}

// shortage is what is known of the CPU: the latest scheduling latency, and how many
// runs are claimed and have not begun.
func (e *executors) shortage() (latency time.Duration, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.latency, e.waiting()
}

// short is the latest scheduling latency while the worker is short of CPU, otherwise zero.
func (e *executors) short() time.Duration {
	now := e.w.config.Elapsed()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.begins.Short(now) {
		return 0
	}
	return e.latency
}

// schedulingLatency is the latest one.
func (e *executors) schedulingLatency() time.Duration {
	latency, _ := e.shortage()
	return latency
}

// measureLoop measures the latency now and then, also while nothing waits: handlers may
// begin to compute long after they have begun.
func (w *Worker) measureLoop(ctx context.Context) {
	for w.sleep(ctx, min(w.config.Terms.Duration/20, latencyEvery)) {
		w.executors.measure()
	}
}

// poke wakes the goroutine that receives from a channel of one value, now or when it next
// receives. It never blocks.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
