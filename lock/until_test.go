package lock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
)

func TestUntil_ASuspendedMachineIsNoticedWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var asleep atomic.Int64
		elapsed := func() time.Duration { return time.Since(began) + time.Duration(asleep.Load()) }
		pass := func(d time.Duration) {
			time.Sleep(d) //nolint:forbidigo // virtual time of the bubble
			synctest.Wait()
		}
		ctx, cancel := lock.Until(t.Context(), 20*time.Second, elapsed)
		defer cancel()
		pass(5500 * time.Millisecond)
		require.NoError(t, ctx.Err())
		asleep.Store(int64(time.Hour))
		pass(time.Second)
		require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)

		asleep.Store(0)
		ctx, cancel = lock.Until(t.Context(), 20*time.Second, elapsed)
		pass(13400 * time.Millisecond)
		require.NoError(t, ctx.Err())
		pass(200 * time.Millisecond)
		require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
		cancel()

		ctx, cancel = lock.Until(t.Context(), time.Hour, elapsed)
		cancel()
		require.ErrorIs(t, context.Cause(ctx), context.Canceled)
	})
}
