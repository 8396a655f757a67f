package observe

import (
	"sync/atomic"
	"time"

	"github.com/durable-worker/durable-worker/lock"
)

// lockCounts are of one named lock.
type lockCounts struct {
	granted, refused, lost, expired atomic.Int64

	waiting    atomic.Int64
	wait, hold *classes // nanoseconds
}

func newLockCounts() *lockCounts {
	return &lockCounts{wait: newClasses(runBounds()), hold: newClasses(runBounds())}
}

func (t *Tally) lockDecided(d lock.Decision) {
	counts := t.locks.of(d.Name)
	counts.waiting.Store(int64(d.Waiting))
	counts.wait.add(int64(d.Waited))
	if d.Err != nil {
		counts.refused.Add(1)
		return
	}
	counts.granted.Add(1)
	if d.Expired {
		counts.expired.Add(1)
	}
}

func (t *Tally) lockEnded(e lock.End) {
	if e.Overdue && !e.Lost { // it is held on
		return
	}
	counts := t.locks.of(e.Name)
	counts.hold.add(int64(e.Held))
	if e.Lost {
		counts.lost.Add(1)
	}
}

func (t *Tally) lockDegraded(d lock.Degradation) {
	t.degraded.Add(int64(max(d.Passed, time.Duration(0))))
}
