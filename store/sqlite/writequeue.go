package sqlite

import (
	"context"
	"slices"
	"sync"
)

// urgency orders those who wait to write.
type urgency int

// The urgencies, the most urgent first. A heartbeat that comes late costs a
// lease; an enqueue that comes late costs nothing but its caller's time.
const (
	heartbeats urgency = iota
	settles
	claims
	reclaims
	enqueues
	urgencies int = iota
)

// fairness is how often the one who has waited longest comes next instead of
// the most urgent one, so that none waits forever.
const fairness = 8

// writeQueue lets one writer in at a time, the most urgent first. Proved by TestWriteQueue.
type writeQueue struct {
	mu      sync.Mutex // guards the fields below
	inside  bool
	waiting [urgencies][]*waiter
	arrived uint64 // waiters that have ever come
	left    uint64 // writers that have left
}

type waiter struct {
	number uint64        // its arrival
	turn   chan struct{} // closed when it is let in
}

// enter waits for its turn, or for the end of ctx.
func (g *writeQueue) enter(ctx context.Context, u urgency) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	if !g.inside {
		g.inside = true
		g.mu.Unlock()
		return nil
	}
	g.arrived++
	w := &waiter{number: g.arrived, turn: make(chan struct{})}
	g.waiting[u] = append(g.waiting[u], w)
	g.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
		g.withdraw(u, w)
		return ctx.Err()
	}
}

// withdraw takes back a wait. A turn that came at the same moment is passed on.
func (g *writeQueue) withdraw(u urgency, w *waiter) {
	g.mu.Lock()
	i := slices.Index(g.waiting[u], w)
	if i >= 0 {
		g.waiting[u] = slices.Delete(g.waiting[u], i, i+1)
	}
	g.mu.Unlock()
	if i < 0 {
		g.leave()
	}
}

// leave lets the next one in.
func (g *writeQueue) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left++
	next := -1
	for u, line := range g.waiting {
		if len(line) == 0 {
			continue
		}
		if next < 0 || g.left%fairness == 0 && line[0].number < g.waiting[next][0].number {
			next = u
		}
	}
	if next < 0 {
		g.inside = false
		return
	}
	w := g.waiting[next][0]
	g.waiting[next] = g.waiting[next][1:]
	close(w.turn)
}
