package heartbeat_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/lease"
)

type allRenewed struct{}

func (allRenewed) Renew(_ context.Context, claims []lease.ClaimID, _ time.Duration) ([]lease.ClaimID, error) {
	return claims, nil
}

// BenchmarkHoldAndRelease holds one lease more beside so many, and releases it.
func BenchmarkHoldAndRelease(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			k := heartbeat.New(allRenewed{}, heartbeat.Config{
				Terms: lease.Terms{}.WithDefaults(), Elapsed: lease.Elapsed, Random: func() float64 { return 0.5 },
				Logger: slog.New(slog.DiscardHandler),
			})
			later := lease.Elapsed() + time.Hour // nothing is lost meanwhile
			for i := range n {
				k.Hold(b.Context(), lease.Lease{Claim: lease.NewClaimID(), Asked: later + time.Duration(i)})
			}
			for b.Loop() {
				_, h := k.Hold(b.Context(), lease.Lease{Claim: lease.NewClaimID(), Asked: later + time.Duration(n)})
				h.Release()
			}
		})
	}
}
