package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// Health is what a probe found.
type Health string

// The states of health.
const (
	Healthy   Health = "healthy"   // a lock was taken and given back
	Degraded  Health = "degraded"  // the store answers and did not grant it
	Unhealthy Health = "unhealthy" // the store was unreachable
)

const (
	probePrefix   = "durable/probe/"
	probeDuration = 5 * time.Second
	probeSlots    = 16 // probes of one Locker at the same time
)

// Probe takes and releases a lock of five seconds. Its name belongs to this
// Locker alone, so that concurrent probes of several processes do not collide. The
// error says why the answer is not Healthy.
func (l *Locker) Probe(ctx context.Context) (Health, error) {
	type found struct {
		health Health
		err    error
	}
	got, gone := apart(ctx, l, l.asking, 2*l.config.CallTimeout, func(ctx context.Context) (f found) {
		f.health, f.err = l.probed(ctx)
		return f
	}, func(found) {})
	if gone != nil {
		return Unhealthy, fmt.Errorf("probe: %w", gone)
	}
	return got.health, got.err
}

// probed takes the lock and releases it. Where it fails to, no other process wants the lock.
func (l *Locker) probed(ctx context.Context) (Health, error) {
	asked := l.config.Elapsed()
	call, cancel := context.WithTimeout(ctx, l.config.CallTimeout)
	defer cancel()
	claim := lease.NewClaimID()
	answer, err := l.store.Acquire(call, Request{
		Name: l.probe, Slots: probeSlots, Claim: claim, Owner: l.config.Owner, Duration: probeDuration,
	})
	l.called("probe", asked, err)
	l.answered(err)
	if err != nil {
		return Unhealthy, fmt.Errorf("probe: %w: %w", ErrUnavailable, err)
	}
	if !answer.Granted {
		return Degraded, fmt.Errorf("probe %s: %w", l.probe, ErrHeld)
	}
	released, err := l.release(ctx, claim, l.probe)
	if err != nil {
		return Unhealthy, fmt.Errorf("probe: %w: %w", ErrUnavailable, err)
	}
	if !released {
		return Degraded, fmt.Errorf("probe %s: %w", l.probe, lease.ErrLost)
	}
	return Healthy, nil
}
