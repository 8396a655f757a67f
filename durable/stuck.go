package durable

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// graceSlices are the timers that one grace is made of.
const graceSlices = 8

// standing is a timer whose end is a grace. Of that, the time for which the
// process was stopped (SIGSTOP, a suspended machine) counts as an eighth at most:
// handlers were stopped as well.
type standing struct {
	mu      sync.Mutex // guards timer and stopped
	timer   *time.Timer
	stopped bool
}

// afterStanding calls f when a wait and then a grace have passed, unless the
// timer is stopped before.
func afterStanding(wait, grace time.Duration, f func()) *standing {
	s := &standing{}
	grace = min(max(grace, 0), store.MaxDelay)
	var slice func(left int)
	slice = func(left int) {
		if left == 0 {
			f()
			return
		}
		s.after(grace/graceSlices, func() { slice(left - 1) })
	}
	if wait > 0 {
		s.after(wait, func() { slice(graceSlices) })
	} else {
		slice(graceSlices)
	}
	return s
}

func (s *standing) after(d time.Duration, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.timer = time.AfterFunc(d, f)
	}
}

// stop stops the timer; nil is none. An f that has begun continues.
func (s *standing) stop() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.timer.Stop()
}

// giveUp settles a run whose handler has not returned although its timeout and
// the grace after it have passed.
func (x *execution) giveUp() {
	if x.resolution.Load() != unresolved {
		return
	}
	x.keepFailure(ErrTimeout)
	o := decideOutcome(nil, ErrTimeout, nil, x.run, Fixed(unknownDelay))
	defer func() { // also when the retry policy exits
		if reason := x.cancelReason.Load(); reason != nil {
			o = outcomeCancelled(ErrTimeout, *reason)
		} else {
			o.Error = fmt.Sprintf("timed out after %v and ignored its context", x.run.Timeout)
		}
		if !x.replace(resolvedTimeout) {
			return
		}
		o.Stack, o.Log = storable.Text(x.w.stackOf(x), store.MaxErrorSize), x.logText(o.Kind)
		x.logger().Error("handler is stuck: it ignored its timeout; the run is settled as failed", "event", "run.stuck", "timeout", x.run.Timeout.String(), "stack", o.Stack)
		x.w.settler.add(x, o)
	}()
	o = decideOutcome(nil, ErrTimeout, nil, x.run, x.retry)
}

// watchLost waits half a margin after a claim was lost, then marks the
// handlers that have not returned as stuck. Their runs are not settled: the
// lease decides when another worker may begin.
func (w *Worker) watchLost(c *claim) {
	if !errors.Is(context.Cause(c.ctx), lease.ErrLost) {
		return
	}
	c.observeLost()
	c.lost.Store(afterStanding(0, w.config.Terms.Margin()/2, func() {
		for i := range c.runs {
			if x := &c.runs[i]; x.replace(resolvedLost) {
				x.logger().Error("handler is stuck: it ignores that its lease was lost", "event", "run.stuck_without_lease", "stack", storable.Text(w.stackOf(x), store.MaxErrorSize))
			}
		}
	}))
}

// replace marks an execution as stuck and gives its slot to another run, as
// long as no more than MaxConcurrentRuns handlers are stuck. It reports whether
// this call decided the resolution.
func (x *execution) replace(resolution int32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.resolution.Load() != unresolved || !x.begun.Load() {
		return false
	}
	if x.w.stuck.Add(1) <= int64(x.w.config.MaxConcurrentRuns) {
		x.slotGone = true
	} else {
		x.w.stuck.Add(-1)
	}
	gone := x.slotGone
	if !x.resolution.CompareAndSwap(unresolved, resolution) {
		if gone {
			x.slotGone = false
			x.w.stuck.Add(-1)
		}
		return false
	}
	if gone {
		x.freeSlot()
	}
	x.w.executors.gaveUp()
	x.w.aloneEnded(x.claim)
	x.observeLost(observe.HandlerStuck)
	return true
}

// stackOf finds the stack of a stuck handler by the address of its execution;
// empty when it cannot be found.
func (w *Worker) stackOf(x *execution) string {
	buffer := make([]byte, 1<<20)
	return storable.FindStack(string(buffer[:runtime.Stack(buffer, true)]), fmt.Sprintf("(*execution).perform(%p", x))
}
