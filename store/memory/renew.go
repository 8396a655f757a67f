package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// Renew extends the leases that still exist, expired ones included, except those of
// which a part was taken over.
func (s *Store) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("renew: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	expiresAt := now.Add(d)
	var renewed []lease.ClaimID
	for _, claim := range claims {
		if l, known := s.leases[claim]; known && !l.expiresAt.IsZero() {
			l.renewedAt, l.expiresAt = now, expiresAt
			renewed = append(renewed, claim)
		}
	}
	return renewed, nil
}
