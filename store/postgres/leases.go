package postgres

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// Renew extends leases, on connections that nothing else uses, as long as there is one.
func (s *Store) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	return s.worker.leases.Renew(ctx, claims, d)
}

// Reclaim takes back the runs of expired leases, when one question without locks has found that
// there are some.
func (s *Store) Reclaim(ctx context.Context, request store.ReclaimRequest) (store.ReclaimResult, error) {
	return s.worker.leases.Reclaim(ctx, request)
}
