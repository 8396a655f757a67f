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
}

// outagePause is the longest time between two questions to a store that is down.
const outagePause = time.Second

// asked is what the store answered to a Request.
type asked struct {
	at     time.Duration // when it was sent, on the monotonic clock
	answer Answer
	err    error
}

// ask makes one call, unless the store is known to be down. The error is an
// ErrUnavailable, or the cause of the end of ctx. What may then have been granted
// is given back, and never asked for again.
func (l *Locker) ask(ctx context.Context, a *attempt) (asked, error) {
	if l.resting() {
		return asked{}, fmt.Errorf("%w: %w", ErrUnavailable, errMomentAgo)
	}
	request := a.request
	got, gone := apart(ctx, l, l.asking, l.config.CallTimeout, func(ctx context.Context) asked { return l.askStore(ctx, request) }, func(late asked) {
		if late.answer.Granted && !l.abandon(request.Claim, request.Name) {
			l.giveBack(request.Claim, request.Name, request.Duration)
		}
	})
	if gone != nil {
		return asked{}, gone
	}
	if got.err != nil {
		a.request.Claim = lease.NewClaimID()
		return asked{}, fmt.Errorf("%w: %w", ErrUnavailable, got.err)
	}
	return got, nil
}

var errMomentAgo = errors.New("it failed a moment ago")

// askStore makes the call, unless the store has turned out to be down while it waited in line.
func (l *Locker) askStore(ctx context.Context, request Request) asked {
	if !l.mayAsk() {
		return asked{err: errMomentAgo}
	}
	began := l.config.Elapsed()
	answer, err := l.store.Acquire(ctx, request)
	l.called("acquire", began, err)
	l.answered(err)
	if err != nil && !errors.Is(err, ErrRefused) {
		l.giveBack(request.Claim, request.Name, request.Duration)
	}
	return asked{began, answer, err}
}

// resting reports whether the store is down and has been asked a moment ago.
func (l *Locker) resting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outage.down && l.config.Elapsed() < l.outage.retryAt
}

// mayAsk reports whether a call may ask the store. While it is down that is the one that tries.
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
	l.outage.retryAt = now + l.config.CallTimeout
	return true
}

// answered notes whether the store answers, by how one call has ended that had its whole time.
func (l *Locker) answered(err error) {
	if err == nil || errors.Is(err, ErrRefused) {
		l.reached()
	} else {
		l.failed(err)
	}
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

// reached notes that a call of the store was answered.
func (l *Locker) reached() {
	l.mu.Lock()
	o := &l.outage
	if !o.down {
		l.mu.Unlock()
		return
	}
	now := l.config.Elapsed()
	lasted, passed := now-o.began, now-o.reported
	*o = outage{}
	l.mu.Unlock()
	l.config.Logger.Info("lock store is back", "event", "lock.back", "after", lasted.String())
	report(l.config.Hooks.Degraded, Degradation{Passed: passed})
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
