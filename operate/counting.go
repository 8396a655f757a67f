package operate

import (
	"context"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// counting keeps the last numbers of runs by state, for who must not wait for them.
type counting struct {
	mu      sync.Mutex
	reading chan struct{} // closed when the read that is under way has ended; nil: none is
	last    RunCounts
	slow    bool          // they were read, and it took longer than who asks waits
	next    time.Duration // when they are read again, as elapsed time; zero: now
	under   sync.WaitGroup
}

const (
	countsWithin = 40 * time.Millisecond // how long LastCounts waits
	countsFor    = time.Second           // how long numbers are shown before they are read again, at least
	countsLimit  = 10 * time.Second      // of reading them
	countsShare  = 20                    // and how many times as long as their reading took
)

// LastCounts returns the numbers of Counts as they were read last, of a small store
// immediately before. It waits for about 40 ms at most, and not at all once counting has
// taken longer: a large store is counted aside, and until that has ended for the first time
// there are no numbers. Counting takes at most a
// twentieth of the time. Close waits for it.
func (o *Operator) LastCounts(ctx context.Context) RunCounts {
	c := &o.counting
	c.mu.Lock()
	if c.reading == nil && lease.Elapsed() >= c.next {
		c.reading = make(chan struct{})
		c.under.Go(func() { o.readCounts(context.WithoutCancel(ctx)) })
	}
	reading, slow := c.reading, c.slow
	c.mu.Unlock()
	if reading != nil && !slow {
		select {
		case <-reading:
		case <-time.After(countsWithin):
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// slowCounts returns the numbers that LastCounts would, if they are known and counting takes
// longer than it waits.
func (o *Operator) slowCounts(ctx context.Context) (counts RunCounts, slow bool) {
	c := &o.counting
	c.mu.Lock()
	slow = c.slow
	c.mu.Unlock()
	if !slow {
		return RunCounts{}, false
	}
	counts = o.LastCounts(ctx)
	return counts, counts.Counts != nil
}

// readCounts counts the runs, and keeps the numbers when the store has answered.
func (o *Operator) readCounts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, countsLimit)
	defer cancel()
	began := lease.Elapsed()
	counts, err := o.Counts(ctx)
	c := &o.counting
	c.mu.Lock()
	defer c.mu.Unlock()
	now := lease.Elapsed()
	if err == nil {
		c.last, c.slow = counts, now-began > countsWithin
	}
	c.next = now + max(countsFor, countsShare*(now-began))
	close(c.reading)
	c.reading = nil
}
