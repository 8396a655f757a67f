package timetable

import (
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const (
	// crowdedFor is how long after a transaction that had its fill of schedules
	// a second may evaluate beside the first. Each skips the rows the other
	// has.
	crowdedFor = time.Second
	// headEvery is how many transactions continue from each other in the index.
	// The next one begins at its head, for what was skipped.
	headEvery = 8
)

// dueBacklog remembers how far the transactions of this process have come while more schedules
// are due than one transaction takes, so that each does not read again what the earlier ones
// have left in the index.
type dueBacklog struct {
	mu    sync.Mutex
	full  time.Duration // when the last full transaction ended, by lease.Elapsed; zero: the backlog is over
	looks int           // transactions since one began at the head
	after queries.DueSchedulesParams
}

// active reports whether there is a backlog.
func (c *dueBacklog) active() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lasts()
}

// lasts is is with c.mu held.
func (c *dueBacklog) lasts() bool { return c.full != 0 && lease.Elapsed()-c.full <= crowdedFor }

// next reports whether there is a backlog, and where the next transaction begins.
func (c *dueBacklog) next(most int32) (params queries.DueSchedulesParams, crowded bool) {
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

// looked records how many schedules a transaction found of those it asked for.
func (c *dueBacklog) looked(rows []queries.DueSchedulesRow, most int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(rows) < int(most) || most == 0 {
		c.full = 0
		return
	}
	last := &rows[len(rows)-1]
	c.full, c.after.AfterAt, c.after.AfterName = lease.Elapsed(), &last.LookAt, last.Name
}

// forget makes the next transaction begin at the head.
func (c *dueBacklog) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = 0
}
