package heartbeat_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/lease"
)

// slow is a Renewer whose answers take a while, as where goroutines wait for a CPU.
type slow struct{ takes time.Duration }

func (s slow) Renew(ctx context.Context, claims []lease.ClaimID, _ time.Duration) ([]lease.ClaimID, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.takes):
		return claims, nil
	}
}

func TestKeeper_WaitsLongerWhileGoroutinesWaitForACPU(t *testing.T) {
	t.Parallel()
	for latency, held := range map[time.Duration]bool{0: false, 2 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			k := heartbeat.New(slow{8 * time.Second}, heartbeat.Config{
				Terms: lease.Terms{}.WithDefaults(), Elapsed: func() time.Duration { return time.Since(began) }, Random: func() float64 { return 0.5 },
				Logger: slog.New(slog.DiscardHandler), Latency: func() time.Duration { return latency },
			})
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { k.Run(ctx) })
			_, hold := k.Hold(ctx, lease.Lease{Claim: lease.NewClaimID()})
			pass(10 * time.Minute)
			require.Equal(t, held, hold.Valid(), "latency %v", latency)
			cancel()
			running.Wait()
		})
	}
}

func TestKeeper_ChecksWhetherHeartbeatsSucceedAgain(t *testing.T) {
	keep(t, func(t *testing.T, k *heartbeat.Keeper, r *scripted) {
		count := func() (calls int) {
			r.change(func() { calls = len(r.calls) })
			return calls
		}
		require.True(t, k.Check(t.Context()))
		require.Zero(t, count(), "nothing has failed")
		_, hold := k.Hold(t.Context(), lease.Lease{Claim: lease.NewClaimID()})
		r.change(func() { r.fail = errors.New("no connection") })
		pass(11 * time.Second)
		require.False(t, k.Check(t.Context()))
		require.Equal(t, 1, count(), "what is held is renewed, and says it")
		hold.Release()
		require.False(t, k.Check(t.Context()))
		require.Equal(t, 2, count())
		r.change(func() { r.fail = nil })
		require.True(t, k.Check(t.Context()), "although nothing is held")
		require.True(t, k.Check(t.Context()))
		require.Equal(t, 3, count())
	})
}
