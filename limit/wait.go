package limit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

const (
	// askAgain is the first pause of a call that waits for a permit to end, and
	// longestPause the longest of any: a limit may be raised, or a penalty lifted.
	askAgain     = 20 * time.Millisecond
	longestPause = time.Second
)

// await tries until a request for a key is granted. One call of each key asks for all
// that wait in this process.
func (l *Limiter) await(ctx context.Context, key string, try func() error) error {
	leave, err := l.enter(ctx, key)
	if err != nil {
		return err
	}
	defer leave()
	for again := askAgain; ; again = min(2*again, longestPause) {
		err := try()
		var full *FullError
		switch {
		case err != nil && ctx.Err() != nil:
			return l.gaveUp(ctx)
		case !errors.As(err, &full):
			return err
		}
		deadline, bounded := ctx.Deadline()
		if bounded && l.limit.Rate() && full.RetryIn > 0 && time.Until(deadline) < full.RetryIn {
			return err
		}
		pause := time.Duration(float64(again) * (0.5 + l.config.Random()/2)) // a place may be given back any time
		if l.limit.Rate() && full.RetryIn > 0 {
			pause = max(min(full.RetryIn, longestPause), time.Millisecond)
		}
		if sleep(ctx, pause) != nil {
			return l.gaveUp(ctx)
		}
	}
}

// enter waits until the call is the first of its key.
func (l *Limiter) enter(ctx context.Context, key string) (leave func(), err error) {
	key = store.LimitKey(key)
	l.mu.Lock()
	at := l.lines[key]
	if at == nil {
		at = &line{first: make(chan struct{}, 1)}
		l.lines[key] = at
	}
	at.calls++
	l.mu.Unlock()
	gone := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if at.calls--; at.calls == 0 {
			delete(l.lines, key)
		}
	}
	select {
	case at.first <- struct{}{}: // senders are served in the order in which they came
		return func() { <-at.first; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, l.gaveUp(ctx)
	}
}

// gaveUp is the error of a wait that its context ended.
func (l *Limiter) gaveUp(ctx context.Context) error {
	return fmt.Errorf("wait for limit %q: %w", l.limit.Name, context.Cause(ctx))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
