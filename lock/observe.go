package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// Observer gets what a Locker does, to count it. Its methods are called by
// the goroutines that use the Locker and must not block.
type Observer interface {
	// LockDecided tells how a call of Acquire or TryAcquire ended.
	LockDecided(Decision)
	// LockEnded tells that a grant was released or lost, or is overdue.
	LockEnded(End)
	// LockCalled tells of one call of the store.
	LockCalled(Call)
	// LockDegraded tells of time during which the store could not be asked:
	// with each failed call the time since the last one, and the rest when the
	// store is back.
	LockDegraded(passed time.Duration)
}

// Decision is how a call of Acquire or TryAcquire ended.
type Decision struct {
	Name    string
	Err     error // nil: granted
	Slot    int
	Local   bool          // granted without the store
	Expired bool          // the slot was taken over from a holder that let it expire
	Waited  time.Duration // the whole call
	Waiting int           // calls of this process that wait for the name now
}

// End is the end of a grant, or the news that it does not end.
type End struct {
	Name    string
	Held    time.Duration
	Lost    bool // the store no longer had it
	Overdue bool // held for 1.5 times as long as expected, and held on
}

// Call is one call of the store.
type Call struct {
	Verb string // acquire, renew, release, probe
	Took time.Duration
	Err  error
}

type unobserved struct{}

func (unobserved) LockDecided(Decision)       {}
func (unobserved) LockEnded(End)              {}
func (unobserved) LockCalled(Call)            {}
func (unobserved) LockDegraded(time.Duration) {}

func (l *Locker) called(verb string, asked time.Duration, err error) {
	l.config.Observer.LockCalled(Call{Verb: verb, Took: l.config.Elapsed() - asked, Err: err})
}

// decided logs and counts how an attempt ended.
func (l *Locker) decided(a *attempt, grant Grant, err error) {
	name, log := a.request.Name, l.config.Logger
	waited := l.config.Elapsed() - a.began
	switch {
	case err == nil && grant.Local:
		log.Warn("lock granted locally, the store is unavailable", "lock", name, "owner", l.config.Owner)
	case err == nil:
		log.Info("lock acquired", "lock", name, "slot", grant.Slot, "owner", l.config.Owner,
			"fence", grant.Fence, "claim", grant.Claim.Short(), "took_over", grant.TookOver)
	case errors.Is(err, ErrUnavailable):
		log.Error("lock not acquired, the store is unavailable", "lock", name, "policy", a.terms.Policy.String(), "error", err)
	case errors.Is(err, ErrHeld) && a.terms.Slots > 1:
		log.Warn("global cap reached, skipped", "lock", name, "max", a.terms.Slots)
	case errors.Is(err, ErrHeld):
		log.Debug("lock held by another, skipped", "lock", name)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		log.Debug("lock no longer wanted", "lock", name)
	}
	l.mu.Lock()
	waiting := len(l.lines[name])
	l.mu.Unlock()
	l.config.Observer.LockDecided(Decision{
		Name: name, Err: err, Slot: grant.Slot, Local: grant.Local, Expired: grant.TookOver, Waited: waited, Waiting: waiting,
	})
}

func (l *Locker) ended(g Grant, h *holding, err error) {
	held := l.config.Elapsed() - h.since
	lost := errors.Is(err, lease.ErrLost)
	if lost {
		l.config.Logger.Warn("lock was lost before it was released", "lock", g.Name, "slot", g.Slot, "held", held.String())
	} else {
		l.config.Logger.Info("lock released", "lock", g.Name, "slot", g.Slot, "owner", l.config.Owner,
			"fence", g.Fence, "held", held.String())
	}
	l.config.Observer.LockEnded(End{Name: g.Name, Held: held, Lost: lost})
}

// Counters is a Observer that adds up. The zero value is ready.
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

// LockDecided implements Observer.
func (c *Counters) LockDecided(d Decision) {
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

// LockEnded implements Observer.
func (c *Counters) LockEnded(e End) {
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

// LockCalled implements Observer.
func (c *Counters) LockCalled(call Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Calls++
	c.counts.CallTime += call.Took
	if call.Err != nil {
		c.counts.CallsFailed++
	}
}

// LockDegraded implements Observer.
func (c *Counters) LockDegraded(passed time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Degraded += passed
}
