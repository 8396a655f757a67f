package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// outage is what a Locker knows of its store's absence.
//
// Invariant: while down, at most one call tries the store in each pause; all
// others follow their lock's policy immediately.
type outage struct {
	down     bool
	reported time.Duration // until here the time was reported to the observer
	began    time.Duration
	retryAt  time.Duration
	orphans  map[lease.ClaimID]string // claims that may exist in the store and have no holder
}

// outagePause is the longest time between two questions to a store that is down.
const outagePause = time.Second

// mostOrphans bounds the memory of claims to give back; the rest expires.
const mostOrphans = 100

// ask makes one call, unless the store is known to be down. The error is an
// ErrUnavailable, or the cause of the end of ctx.
func (l *Locker) ask(ctx context.Context, a *attempt) (Answer, error) {
	if !l.mayAsk() {
		return Answer{}, fmt.Errorf("%w: it failed a moment ago", ErrUnavailable)
	}
	asked := l.config.Elapsed()
	call, cancel := context.WithTimeout(ctx, l.config.CallTimeout)
	defer cancel()
	answer, err := l.store.Acquire(call, a.request)
	if err != nil {
		a.unknown = true
		if ctx.Err() != nil {
			return Answer{}, context.Cause(ctx)
		}
	}
	l.called("acquire", asked, err)
	if err != nil {
		l.failed(err)
		return Answer{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	l.reached(ctx)
	return answer, nil
}

func (l *Locker) mayAsk() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.config.Elapsed()
	if !l.outage.down {
		return true
	}
	if now < l.outage.retryAt {
		return false
	}
	l.outage.retryAt = now + l.config.CallTimeout // this call is the one that tries
	return true
}

// failed notes that a call of the store has failed.
func (l *Locker) failed(err error) {
	l.mu.Lock()
	now := l.config.Elapsed()
	o := &l.outage
	first := !o.down
	if first {
		o.down, o.began, o.reported = true, now, now
	}
	o.retryAt = now + time.Duration(float64(outagePause)*(0.5+0.5*l.config.Random()))
	passed := now - o.reported
	o.reported = now
	l.mu.Unlock()
	if first {
		l.config.Logger.Error("lock store failed, falling back to each lock's policy", "event", "lock.degraded", "error", err)
	}
	report(l.config.Hooks.Degraded, Degradation{Passed: passed})
}

// reached notes that a call of the store was answered. The first one after an
// outage frees the grants that no holder may have got.
func (l *Locker) reached(ctx context.Context) {
	l.mu.Lock()
	o := &l.outage
	if !o.down {
		l.mu.Unlock()
		return
	}
	now := l.config.Elapsed()
	lasted, passed, orphans := now-o.began, now-o.reported, o.orphans
	*o = outage{}
	l.mu.Unlock()
	l.config.Logger.Info("lock store is back", "event", "lock.back", "after", lasted.String())
	report(l.config.Hooks.Degraded, Degradation{Passed: passed})
	for claim, name := range orphans {
		if _, err := l.release(ctx, claim, name); err != nil {
			l.orphan(claim, name)
		}
	}
}

// Degraded reports for how long the store has been unreachable, and is 0 when the
// last call was answered.
func (l *Locker) Degraded() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.outage.down {
		return 0
	}
	return max(l.config.Elapsed()-l.outage.began, 1)
}

// giveBack releases a claim that may have been granted and has no holder:
// immediately, or when the store is back.
func (l *Locker) giveBack(ctx context.Context, claim lease.ClaimID, name string) {
	if l.Degraded() == 0 {
		if _, err := l.release(ctx, claim, name); err == nil {
			return
		}
	}
	l.orphan(claim, name)
}

func (l *Locker) orphan(claim lease.ClaimID, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.outage.orphans) >= mostOrphans {
		return
	}
	if l.outage.orphans == nil {
		l.outage.orphans = map[lease.ClaimID]string{}
	}
	l.outage.orphans[claim] = name
}

// fallBack follows the lock's policy.
func (l *Locker) fallBack(a *attempt, why error) (Grant, error) {
	switch a.terms.Policy {
	case RunLocal:
		grant := Grant{
			Lease: lease.Lease{Claim: lease.NewClaimID(), Asked: l.config.Elapsed()}, Name: a.request.Name, Local: true, Terms: a.terms,
		}
		if l.holdLocal(grant) {
			return grant, nil
		}
		return Grant{}, a.held(fmt.Errorf("the local cap is reached: %w", why))
	case Fail:
		return Grant{}, fmt.Errorf("lock %q: %w", a.request.Name, why)
	default:
		return Grant{}, a.held(why)
	}
}

// waitsOn reports whether a waiting call continues to wait after an error.
func waitsOn(err error, a *attempt) bool {
	return errors.Is(err, ErrHeld) && a.terms.Wait != 0
}
