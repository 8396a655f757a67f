package lock

import (
	"context"
	"errors"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// called reports one call of the store.
func (l *Locker) called(verb string, asked time.Duration, err error) {
	report(l.config.Hooks.Called, Call{Verb: verb, Took: l.config.Elapsed() - asked, Err: err})
}

// over reports whether a context has ended, or ends at this instant: a client that sets its
// connection's deadline to that of the context may be quicker than the context itself.
func over(ctx context.Context) bool {
	deadline, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && !time.Now().Before(deadline)
}

// decided logs and counts how an attempt ended.
func (l *Locker) decided(a *attempt, grant Grant, err error) {
	name, log := a.request.Name, l.config.Logger
	waited := l.config.Elapsed() - a.began
	switch {
	case err == nil && grant.Local:
		log.Warn("lock granted locally, the store is unavailable", "event", "lock.granted_locally", "lock", name, "owner", l.config.Owner)
	case err == nil:
		log.Info("lock acquired", "event", "lock.granted", "lock", name, "slot", grant.Slot, "owner", l.config.Owner,
			"fence", grant.Fence, "claim", grant.Claim.Short(), "took_over", grant.TookOver)
	case errors.Is(err, ErrUnavailable):
		log.Error("lock not acquired, the store is unavailable", "event", "lock.unavailable", "lock", name, "policy", a.terms.Policy.String(), "error", err)
	case errors.Is(err, ErrHeld) && a.terms.Slots > 1:
		log.Warn("global cap reached, skipped", "event", "lock.full", "lock", name, "max", a.terms.Slots)
	case errors.Is(err, ErrHeld):
		log.Debug("lock held by another, skipped", "event", "lock.held", "lock", name)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		log.Debug("lock no longer wanted", "event", "lock.abandoned", "lock", name)
	}
	l.mu.Lock()
	waiting := len(l.lines[name])
	l.mu.Unlock()
	report(l.config.Hooks.Decided, Decision{
		Name: name, Err: err, Slot: grant.Slot, Local: grant.Local, Expired: grant.TookOver, Waited: waited, Waiting: waiting,
	})
}

func (l *Locker) ended(g Grant, h *holding, err error) {
	held := l.config.Elapsed() - h.since
	lost := errors.Is(err, lease.ErrLost)
	if lost {
		l.config.Logger.Warn("lock was lost before it was released", "event", "lock.released_late", "lock", g.Name, "slot", g.Slot, "held", held.String())
	} else {
		l.config.Logger.Info("lock released", "event", "lock.released", "lock", g.Name, "slot", g.Slot, "owner", l.config.Owner,
			"fence", g.Fence, "held", held.String())
	}
	report(l.config.Hooks.Ended, End{Name: g.Name, Held: held, Lost: lost})
}
