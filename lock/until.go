package lock

import (
	"context"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// mostWait bounds how long the elapsed time is not read. It advances while the
// machine is suspended; the timers of package time do not.
const mostWait = time.Second

// until returns a child of parent that ends with the cause ErrLost at an instant
// of the elapsed time; a second later at most when the machine was suspended.
func until(parent context.Context, deadline time.Duration, elapsed func() time.Duration) (context.Context, context.CancelFunc) {
	timed, release := context.WithTimeoutCause(parent, deadline-elapsed(), lease.ErrLost)
	ctx, lose := context.WithCancelCause(timed)
	var mu sync.Mutex // guards the timer, which may end before it is known here
	var timer *time.Timer
	check := func() {
		mu.Lock()
		defer mu.Unlock()
		if left := deadline - elapsed(); left > 0 && ctx.Err() == nil {
			timer.Reset(min(left, mostWait))
		} else {
			lose(lease.ErrLost)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(min(max(deadline-elapsed(), 0), mostWait), check)
	return ctx, func() {
		lose(context.Canceled)
		release()
		timer.Stop()
	}
}
