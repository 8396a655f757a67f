package postgres

import (
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const (
	// crowdedFor is how long after a transaction that had its fill of schedules
	// a second may evaluate beside the first. Each passes over the rows the other
	// has.
	crowdedFor = time.Second
	// headEvery is how many transactions go on from each other in the index.
	// The next one begins at its head, for what was passed over.
	headEvery = 8
)

// crowd is what a process knows when more schedules are due than one transaction
// takes: how far its transactions have come. What they have left in the index
// behind them need not be read again by each.
type crowd struct {
	mu    sync.Mutex
	full  time.Duration // the last that had its fill, by lease.Elapsed; zero: none, or one has not since
	looks int           // since one began at the head
	after queries.DueSchedulesParams
}

// is tells whether there is a crowd.
func (c *crowd) is() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lasts()
}

// lasts is is; c.mu is held.
func (c *crowd) lasts() bool { return c.full != 0 && lease.Elapsed()-c.full <= crowdedFor }

// next tells whether there is a crowd, and where the next transaction begins.
func (c *crowd) next(most int32) (params queries.DueSchedulesParams, crowded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.lasts() {
		return queries.DueSchedulesParams{Most: most}, false
	}
	if c.looks++; c.looks%headEvery == 0 {
		return queries.DueSchedulesParams{Most: most}, true
	}
	params = c.after
	params.Most = most
	return params, true
}

// looked takes in what a transaction has found that wanted so many.
func (c *crowd) looked(rows []queries.DueSchedulesRow, most int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(rows) < int(most) || most == 0 {
		c.full = 0
		return
	}
	last := &rows[len(rows)-1]
	c.full, c.after.AfterAt, c.after.AfterName = lease.Elapsed(), &last.LookAt, last.Name
}

// forget has the next transaction begin at the head.
func (c *crowd) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = 0
}
