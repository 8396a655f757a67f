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

// Permit is the right to places of one key. It ends when you release it, or when
// Config.Terms.Duration has passed since it was acquired or last extended.
type Permit struct {
	limiter *Limiter
	key     string
	claim   lease.ClaimID
	asked   time.Duration // monotonic time just before it was acquired
}

// Do waits for a place of a key, until the context ends, and calls a function while it has
// the place. Do gives the place back when the function has returned, even if it panics.
//
// If the place is lost, the function's context ends with the cause lease.ErrLost, before
// the store would give the place to another caller. A function that ignores that continues
// beyond the limit. The error of Do is then the function's own, joined with lease.ErrLost.
// If giving the place back fails for any other reason, that is not an error: the place
// becomes free when its time has run out.
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

// TryAcquire takes n places of a key. If there is no room for all of them, it takes none
// and returns a FullError.
func (l *Limiter) TryAcquire(ctx context.Context, key string, n int) (*Permit, error) {
	p := &Permit{limiter: l, key: key, claim: lease.NewClaimID()}
	return p.acquired(ctx, p.acquire(ctx, n))
}

// Acquire waits until it can take n places of a key, and takes them. It waits as Wait does.
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

// Extend makes the permit last for Config.Terms.Duration from now. It returns
// lease.ErrLost if the permit has ended. A function that Do calls does not need Extend.
func (p *Permit) Extend(ctx context.Context) error {
	err := p.limiter.ask(ctx, p.request(store.UsageRenew, p.limiter.config.Terms.Duration))
	if errors.Is(err, ErrFull) {
		return fmt.Errorf("extend limit %q: %w", p.limiter.limit.Name, lease.ErrLost)
	}
	return err
}

// Release gives the places back. It does so even if ctx has ended, within
// Config.CallTimeout. It returns lease.ErrLost if the permit had ended before, in which
// case others may already have taken its places.
func (p *Permit) Release(ctx context.Context) error {
	err := p.limiter.ask(context.WithoutCancel(ctx), p.request(store.UsageGive, 0))
	if errors.Is(err, ErrFull) {
		return fmt.Errorf("release limit %q: %w", p.limiter.limit.Name, lease.ErrLost)
	}
	return err
}

// Renew implements heartbeat.Renewer, so that you can keep the permit alive with a Keeper
// of your own.
func (p *Permit) Renew(ctx context.Context, claims []lease.ClaimID, _ time.Duration) ([]lease.ClaimID, error) {
	err := p.Extend(ctx)
	if errors.Is(err, lease.ErrLost) {
		return nil, nil
	}
	return claims, err
}
