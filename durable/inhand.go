package durable

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/lease"
)

// claim is one period of ownership of runs by this worker.
type claim struct {
	id    lease.ClaimID
	alone bool
	asked time.Duration   // monotonic clock when it was sent
	ctx   context.Context // ends with lease.ErrLost, or at the end of a drain with ErrDraining
	hold  *heartbeat.Hold
	watch func() bool              // stops watching for the loss
	told  *time.Timer              // of an isolated run that continues for long; nil: not alone
	lost  atomic.Pointer[standing] // since the loss, until its handlers have to have returned
	runs  []execution

	unsettled int         // runs whose settle has no verdict yet; the settler's own
	aloneOver atomic.Bool // other runs may be claimed again, if it was alone
}

// roster knows the claims in hand and how many handlers have not returned.
type roster struct {
	mu        sync.Mutex
	claims    map[*claim]struct{}
	left      []*execution // settled without their handlers, which have not returned
	executing int
	abandoned bool
	idle      *sync.Cond

	ending atomic.Int64 // handlers that have returned and whose outcomes are not handed over yet
}

func (r *roster) add(c *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claims == nil {
		r.claims = map[*claim]struct{}{}
	}
	r.claims[c] = struct{}{}
	r.executing += len(c.runs)
}

// returned counts handlers that have returned.
func (r *roster) returned(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.executing -= n
	if r.executing == 0 || r.abandoned {
		r.condition().Broadcast()
	}
}

// remove forgets a claim that is settled, except for handlers that were given up:
// a drain has to tell of them.
func (r *roster) remove(c *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.claims, c)
	r.left = slices.DeleteFunc(r.left, func(x *execution) bool { return x.returned.Load() })
	for i := range c.runs {
		if x := &c.runs[i]; !x.returned.Load() {
			r.left = append(r.left, x)
		}
	}
}

// hasStuck reports whether a handler that was given up has not returned.
func (r *roster) hasStuck() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.claims {
		for i := range c.runs {
			if c.runs[i].isStuck() {
				return true
			}
		}
	}
	return slices.ContainsFunc(r.left, (*execution).isStuck)
}

// since returns the executions that were claimed before an instant of the own
// clock and whose handlers have not returned, in no order. Those that were given
// up are left out.
func (r *roster) since(before time.Duration) (old []*execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.claims {
		for i := range c.runs {
			if x := &c.runs[i]; c.asked < before && !x.returned.Load() && x.resolution.Load() == unresolved {
				old = append(old, x)
			}
		}
	}
	return old
}

// len returns how many handlers have not returned.
func (r *roster) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.executing
}

// wait blocks until every handler has returned, or abandon.
func (r *roster) wait() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.executing > 0 && !r.abandoned {
		r.condition().Wait()
	}
}

// abandon ends wait and returns the runs whose handlers have not returned, each
// once.
func (r *roster) abandon() (stuck []RunID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned = true
	r.condition().Broadcast()
	named := map[RunID]bool{}
	name := func(x *execution) {
		if id := x.run.ID; !x.returned.Load() && !named[id] {
			named[id] = true
			stuck = append(stuck, id)
		}
	}
	for c := range r.claims {
		for i := range c.runs {
			name(&c.runs[i])
		}
	}
	for _, x := range r.left {
		name(x)
	}
	return stuck
}

// handOver waits, after abandon, until the outcomes of all handlers that have
// returned are handed over, or ctx ends.
func (r *roster) handOver(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.condition().Broadcast()
	})
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.ending.Load() > 0 && ctx.Err() == nil {
		r.condition().Wait()
	}
}

func (r *roster) condition() *sync.Cond {
	if r.idle == nil {
		r.idle = sync.NewCond(&r.mu)
	}
	return r.idle
}

// held returns the claims in hand.
func (r *roster) held() map[lease.ClaimID]*claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := make(map[lease.ClaimID]*claim, len(r.claims))
	for c := range r.claims {
		held[c.id] = c
	}
	return held
}
