package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// Renew extends every named lease that still exists, ahead of other
// writes that wait.
func (s *Store) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	var renewed []lease.ClaimID
	err := s.write(ctx, heartbeats, func(ctx context.Context, c *change) error {
		renewed = make([]lease.ClaimID, 0, len(claims))
		expiry := c.now + d.Microseconds()
		for _, claim := range claims {
			rows, err := c.RenewLease(ctx, queries.RenewLeaseParams{ExpiresAt: expiry, ClaimID: claim[:]})
			if err != nil {
				return err
			}
			if rows > 0 {
				renewed = append(renewed, claim)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("renew leases: %w", err)
	}
	return renewed, nil
}
