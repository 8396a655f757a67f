package lock

import (
	"errors"
	"sync"
	"time"
)

// Counters adds up what its Hooks report. The zero value is ready.
type Counters struct {
	mu     sync.Mutex
	counts Counts
}

// Counts are the sums of Counters since its start.
type Counts struct {
	Granted     int64         `json:"granted"`      // by the store
	GrantedHere int64         `json:"granted_here"` // locally, while the store was unavailable
	Held        int64         `json:"held"`         // refused: every slot was taken
	Unavailable int64         `json:"unavailable"`  // refused: the store could not be asked
	Expired     int64         `json:"expired"`      // taken over from a holder that let it expire
	Waited      time.Duration `json:"waited"`       // by all calls together
	Released    int64         `json:"released"`
	Lost        int64         `json:"lost"`
	Overdue     int64         `json:"overdue"`
	HeldFor     time.Duration `json:"held_for"` // by all grants together
	Calls       int64         `json:"calls"`    // of the store
	CallsFailed int64         `json:"calls_failed"`
	CallTime    time.Duration `json:"call_time"`
	Degraded    time.Duration `json:"degraded"`
}

// Counts returns the sums.
func (c *Counters) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Hooks returns the hooks that add to the sums.
func (c *Counters) Hooks() Hooks {
	return Hooks{Decided: c.decided, Ended: c.ended, Called: c.called, Degraded: c.degraded}
}

func (c *Counters) decided(d Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Waited += d.Waited
	switch {
	case d.Err == nil && d.Local:
		c.counts.GrantedHere++
	case d.Err == nil:
		c.counts.Granted++
		if d.Expired {
			c.counts.Expired++
		}
	case errors.Is(d.Err, ErrUnavailable):
		c.counts.Unavailable++
	case errors.Is(d.Err, ErrHeld):
		c.counts.Held++
	}
}

func (c *Counters) ended(e End) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.Overdue:
		c.counts.Overdue++
		return
	case e.Lost:
		c.counts.Lost++
	default:
		c.counts.Released++
	}
	c.counts.HeldFor += e.Held
}

func (c *Counters) called(call Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Calls++
	c.counts.CallTime += call.Took
	if call.Err != nil {
		c.counts.CallsFailed++
	}
}

func (c *Counters) degraded(d Degradation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Degraded += d.Passed
}
