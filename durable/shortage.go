package durable

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/protocol"
)

const (
	// beginPerCPU is how many handlers for each CPU begin whatever the scheduling latency is.
	beginPerCPU = 4
	// beginPause is the time between two measurements while runs wait to begin, and
	// claimPause is the time before a worker that is short of CPU looks whether it may claim.
	beginPause = 10 * time.Millisecond
	claimPause = 20 * time.Millisecond
	// latencyEvery bounds the time between two measurements while none wait.
	latencyEvery = time.Second
)

// beginFloor is how many handlers begin whatever the scheduling latency is.
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
	waiting := e.waiting()
	effects := e.begins.Sampled(protocol.BeginSample{At: now, Latency: latency, Waiting: waiting})
	e.mu.Unlock()
	if effects.Tell {
		e.w.config.Logger.Warn("short of CPU: handlers compute, and heartbeats may come too late. Lower DURABLE_MAX_CONCURRENT_RUNS, or give the process more CPU",
			"event", "worker.short_of_cpu", "scheduling_latency", latency.Round(time.Millisecond).String(), "executing", e.w.inFlight.len()-waiting, "waiting", waiting,
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
