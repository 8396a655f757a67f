package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Renew extends leases, on connections that nothing else uses. Many of them
// expire together, so that one row is written for all. When the database refuses
// that, or a transaction holds that row, each lease is renewed in a row of its own.
func (s *Store) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	if len(claims) >= shared {
		renewed, err := s.renewTogether(ctx, claims, d)
		if !refusesStatement(err) || ctx.Err() != nil {
			if err != nil {
				return nil, s.fail("renew leases", err)
			}
			return renewed, nil
		}
		s.config.Logger.Warn("leases cannot be renewed together, renewing each by itself", "event", "lease.renewed_singly", "leases", len(claims), "error", err)
	}
	all := make([]lease.ClaimID, 0, len(claims))
	for some := range slices.Chunk(claims, mapRuns) {
		renewed, err := s.renewEach(ctx, some, d)
		if err != nil {
			return nil, s.fail("renew leases", err)
		}
		all = append(all, renewed...)
	}
	return all, nil
}

// renewEach renews some leases, each in its row.
func (s *Store) renewEach(ctx context.Context, claims []lease.ClaimID, d time.Duration) (renewed []lease.ClaimID, err error) {
	err = s.repeat(ctx, func() error {
		b := s.guarded(ctx)
		b.add(queries.RenewLeases, micro(d), uuids(claims)).Query(func(rows pgx.Rows) error {
			renewed = make([]lease.ClaimID, 0, len(claims))
			return scanIDs(rows, func(id uuid.UUID) { renewed = append(renewed, lease.ClaimID(id)) })
		})
		return s.send(ctx, s.beats, b)
	})
	return renewed, err
}
