package durable

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// claim is one period of ownership of runs by this worker.
type claim struct {
	id      lease.ClaimID
	alone   bool
	limited bool            // its runs were admitted by their limits
	asked   time.Duration   // monotonic clock when it was sent
	ctx     context.Context // ends with lease.ErrLost, or at the end of a drain with ErrDraining
	hold    *heartbeat.Hold
	watch   func() bool              // stops watching for the loss
	warning *time.Timer              // of an isolated run that continues for long; nil: not alone
	lost    atomic.Pointer[standing] // since the loss, until its handlers have to have returned
	runs    []execution

	ended     int         // runs whose outcomes were handed over; the settler's mutex guards it
	unsettled int         // runs whose settle has no verdict yet; the settler's own
	aloneOver atomic.Bool // other runs may be claimed again, if it was alone
}

// inFlight knows the claims in hand and how many handlers have not returned.
type inFlight struct {
	mu         sync.Mutex
	claims     map[*claim]struct{}
	unreturned []*execution // settled without their handlers, which have not returned
	executing  int
	abandoned  bool
	idle       *sync.Cond

	ending atomic.Int64 // handlers that have returned and whose outcomes are not handed over yet
}

func (f *inFlight) add(c *claim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claims == nil {
		f.claims = map[*claim]struct{}{}
	}
	f.claims[c] = struct{}{}
	f.executing += len(c.runs)
}

// returned counts handlers that have returned.
func (f *inFlight) returned(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.executing -= n
	if f.executing == 0 || f.abandoned {
		f.condition().Broadcast()
	}
}

// remove forgets a claim that is settled, except for handlers that were given up:
// a drain has to tell of them.
func (f *inFlight) remove(c *claim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.claims, c)
	f.unreturned = slices.DeleteFunc(f.unreturned, func(x *execution) bool { return x.returned.Load() })
	for i := range c.runs {
		if x := &c.runs[i]; !x.returned.Load() {
			f.unreturned = append(f.unreturned, x)
		}
	}
}

// hasStuck reports whether a handler that was given up has not returned.
func (f *inFlight) hasStuck() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.claims {
		for i := range c.runs {
			if c.runs[i].isStuck() {
				return true
			}
		}
	}
	return slices.ContainsFunc(f.unreturned, (*execution).isStuck)
}

// since returns the executions that were claimed before an instant of the monotonic
// clock and whose handlers have not returned, in no order. Those that were given
// up are left out.
func (f *inFlight) since(before time.Duration) (old []*execution) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.claims {
		for i := range c.runs {
			if x := &c.runs[i]; c.asked < before && !x.returned.Load() && x.resolution.Load() == unresolved {
				old = append(old, x)
			}
		}
	}
	return old
}

// longest returns the execution that was claimed first of those whose handlers have not
// returned, as of an instant of the monotonic clock; nil: there is none.
func (f *inFlight) longest(now time.Duration) (found *store.LongExecution) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.claims {
		for i := range c.runs {
			x := &c.runs[i]
			if age := store.Duration(now - c.asked); !x.returned.Load() && (found == nil || age > found.For) {
				found = &store.LongExecution{Run: x.run.ID, Job: x.job, Queue: x.queue, For: age}
			}
		}
	}
	return found
}

// len returns how many handlers have not returned.
func (f *inFlight) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.executing
}

// wait blocks until every handler has returned, or abandon.
func (f *inFlight) wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.executing > 0 && !f.abandoned {
		f.condition().Wait()
	}
}

// abandon ends wait and returns the runs whose handlers have not returned, each
// once.
func (f *inFlight) abandon() (stuck []RunID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.abandoned = true
	f.condition().Broadcast()
	named := map[RunID]bool{}
	name := func(x *execution) {
		if id := x.run.ID; !x.returned.Load() && !named[id] {
			named[id] = true
			stuck = append(stuck, id)
		}
	}
	for c := range f.claims {
		for i := range c.runs {
			name(&c.runs[i])
		}
	}
	for _, x := range f.unreturned {
		name(x)
	}
	return stuck
}

// handOver waits, after abandon, until the outcomes of all handlers that have
// returned are handed over, or ctx ends.
func (f *inFlight) handOver(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.condition().Broadcast()
	})
	defer stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.ending.Load() > 0 && ctx.Err() == nil {
		f.condition().Wait()
	}
}

func (f *inFlight) condition() *sync.Cond {
	if f.idle == nil {
		f.idle = sync.NewCond(&f.mu)
	}
	return f.idle
}

// held returns the claims in hand.
func (f *inFlight) held() map[lease.ClaimID]*claim {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := make(map[lease.ClaimID]*claim, len(f.claims))
	for c := range f.claims {
		held[c.id] = c
	}
	return held
}
