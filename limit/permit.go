package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// Permit is the right to places of one key. It ends when it is released, or
// Config.Terms.Duration after it was acquired or last extended.
type Permit struct {
	limiter *Limiter
	key     string
	claim   lease.ClaimID
	asked   time.Duration // monotonic time just before it was acquired
}

// Do executes a function while it has a place of a key. It waits for the place until
// the context ends. The context of the function ends with the cause lease.ErrLost when
// the place is lost, and before the store would give it to another; a function that
// ignores that continues beyond the limit. Do gives the place back when the function has
// returned, also when it panics.
//
// When the place was lost, a lease.ErrLost is joined to the function's own error. Other
// failures to give it back are no error: it is free when its time is over.
func (l *Limiter) Do(ctx context.Context, key string, fn func(ctx context.Context) error) (err error) {
	permit, err := l.Acquire(ctx, key, 1)
	if err != nil {
		return err
	}
	defer func() {
		if lost := permit.Release(ctx); errors.Is(lost, lease.ErrLost) && !errors.Is(err, lease.ErrLost) {
			err = errors.Join(err, lost)
		}
	}()
	keeper := heartbeat.New(permit, heartbeat.Config{
		Terms: l.config.Terms, Elapsed: l.config.Elapsed, Random: l.config.Random, Logger: l.config.Logger,
	})
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { keeper.Run(keeping) })
	defer running.Wait()
	defer stop()
	held, hold := keeper.Hold(ctx, lease.Lease{Claim: permit.claim, Asked: permit.asked})
	defer hold.Release()
	defer func() {
		if errors.Is(context.Cause(held), lease.ErrLost) && ctx.Err() == nil {
			err = errors.Join(err, lease.ErrLost)
		}
	}()
	return fn(held)
}

// TryAcquire takes n places of a key, or none: then the error is a FullError.
func (l *Limiter) TryAcquire(ctx context.Context, key string, n int) (*Permit, error) {
	p := &Permit{limiter: l, key: key, claim: lease.NewClaimID()}
	return p.acquired(ctx, p.acquire(ctx, n))
}

// Acquire takes n places of a key, and waits until it can. It waits as Wait does.
func (l *Limiter) Acquire(ctx context.Context, key string, n int) (*Permit, error) {
	p := &Permit{limiter: l, key: key, claim: lease.NewClaimID()}
	return p.acquired(ctx, l.await(ctx, key, func() error { return p.acquire(ctx, n) }))
}

func (p *Permit) acquire(ctx context.Context, n int) error {
	request := p.request(store.UsageAcquire, p.limiter.config.Terms.Duration)
	request.Weight = n
	p.asked = p.limiter.config.Elapsed()
	return p.limiter.ask(ctx, request)
}

func (p *Permit) acquired(ctx context.Context, err error) (*Permit, error) {
	if err == nil {
		return p, nil
	}
	if !errors.Is(err, ErrFull) && !errors.Is(err, store.ErrInvalid) { // the answer may have been lost
		_ = p.Release(ctx)
	}
	return nil, err
}

func (p *Permit) request(usage store.LimitUsage, d time.Duration) store.LimitRequest {
	return store.LimitRequest{Usage: usage, Key: p.key, Owner: uuid.UUID(p.claim).String(), For: d}
}

// Extend lets the permit last for Config.Terms.Duration from now. The error is
// lease.ErrLost when it has ended. What Do executes needs no Extend.
func (p *Permit) Extend(ctx context.Context) error {
	err := p.limiter.ask(ctx, p.request(store.UsageRenew, p.limiter.config.Terms.Duration))
	if errors.Is(err, ErrFull) {
		return fmt.Errorf("extend limit %q: %w", p.limiter.limit.Name, lease.ErrLost)
	}
	return err
}

// Release gives the places back. It uses a context that does not end with ctx, bounded
// by Config.CallTimeout. The error is lease.ErrLost when the permit had ended, so that
// another may have had its places meanwhile.
func (p *Permit) Release(ctx context.Context) error {
	err := p.limiter.ask(context.WithoutCancel(ctx), p.request(store.UsageGive, 0))
	if errors.Is(err, ErrFull) {
		return fmt.Errorf("release limit %q: %w", p.limiter.limit.Name, lease.ErrLost)
	}
	return err
}

// Renew makes the permit a heartbeat.Renewer, for a Keeper of the caller's own.
func (p *Permit) Renew(ctx context.Context, claims []lease.ClaimID, _ time.Duration) ([]lease.ClaimID, error) {
	err := p.Extend(ctx)
	if errors.Is(err, lease.ErrLost) {
		return nil, nil
	}
	return claims, err
}
