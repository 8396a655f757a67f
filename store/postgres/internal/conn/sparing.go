package conn

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// Sparing has the calls of a calm worker share a connection of the engine's: one that comes
// while another is under way waits for it, though the pool would open a connection. For the
// server that is as much work as a hundred calls, and a fleet that starts, or in which each
// worker has little to do, would open many.
type Sparing struct {
	open func() int // how many connections there are, or will be in a moment
	most int        // how many there may be: then there is nothing to spare

	mu      sync.Mutex // guards what follows
	busy    int        // calls under way
	waiting []chan struct{}
	waits   int           // since then
	since   time.Duration // on the clock of lease.Elapsed
}

const (
	// backgroundWait is how long a call waits that no run waits for: longer than a
	// connection takes to open while a whole fleet starts.
	backgroundWait = time.Second
	// HotWait is how long a claim or a settle does. Where they wait as often as
	// calmWaits times in calmFor, the worker is not calm, and they do not wait.
	HotWait   = 50 * time.Millisecond
	calmWaits = 4
	calmFor   = time.Second
)

// Enter waits until a connection is free, but no longer than so long, nor than a quarter of
// the time that the call has. A call that has entered must leave.
func (p *Sparing) Enter(ctx context.Context, most time.Duration) {
	turn := p.line(most <= HotWait)
	if turn == nil {
		return
	}
	wait := time.NewTimer(orQuarter(ctx, most))
	defer wait.Stop()
	select {
	case <-turn:
		return
	case <-wait.C:
	case <-ctx.Done(): // the call itself will say so
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting, turn); i >= 0 { // otherwise its turn has come after all
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.busy++
	}
}

// line is what a call has to wait for; nil: nothing.
func (p *Sparing) line(hot bool) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy == 0 || p.allOpen() || len(p.waiting) == 0 && p.busy < p.open() || hot && !p.calm() {
		p.busy++
		return nil
	}
	turn := make(chan struct{})
	p.waiting = append(p.waiting, turn)
	return turn
}

// calm counts a call that would wait, and reports whether there have been few. p.mu is held.
func (p *Sparing) calm() bool {
	if now := lease.Elapsed(); now-p.since > calmFor {
		p.since, p.waits = now, 0
	}
	p.waits++
	return p.waits <= calmWaits
}

// allOpen reports whether the pool has all of its connections, and orders calls itself.
func (p *Sparing) allOpen() bool { return p.most > 0 && p.open() >= p.most }

// Leave lets the call go ahead that has waited longest.
func (p *Sparing) Leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	for len(p.waiting) > 0 && (p.allOpen() || p.busy < max(p.open(), 1)) {
		close(p.waiting[0])
		p.waiting = p.waiting[1:]
		p.busy++
	}
}

// InBackground makes a call over the engine's connections that no run waits for.
func (d *DB) InBackground(ctx context.Context, call func() error) error {
	d.Sparing.Enter(ctx, backgroundWait)
	defer d.Sparing.Leave()
	return call()
}

// SendInBackground is send for such a call.
func (d *DB) SendInBackground(ctx context.Context, b *Batch) error {
	return d.InBackground(ctx, func() error { return d.sendTo(ctx, d.Engine, b) })
}
