package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// HandBack takes back a claim whose answer never came.
func (s *Store) HandBack(ctx context.Context, request store.ClaimRequest) (int, error) {
	waiting := false
	err := s.write(ctx, settles, func(ctx context.Context, c *change) (err error) {
		waiting, err = c.handBack(ctx, &request)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("hand back: %w", err)
	}
	if waiting {
		s.hint()
	}
	return 0, nil
}

// handBack puts back the runs that are still the claim's, and leaves a lease that
// refuses the claim from then on. waiting reports whether a run is pending again.
func (c *change) handBack(ctx context.Context, request *store.ClaimRequest) (waiting bool, err error) {
	ids, err := c.FindLease(ctx, queries.FindLeaseParams{ClaimID: request.Claim[:]})
	if errors.Is(err, sql.ErrNoRows) {
		return false, c.lease(ctx, request, nil)
	}
	if err != nil {
		return false, err
	}
	settlement := store.Settlement{Claim: request.Claim, Worker: request.Worker}
	for id := range slices.Chunk(ids, idSize) {
		if len(request.Admissions) > 0 {
			if err := c.refundOf(ctx, request.Claim, id); err != nil {
				return false, err
			}
		}
		back, err := c.settlePending(ctx, &settlement, &store.Settled{ID: store.RunID(id), Outcome: store.Outcome{Kind: store.HandedBack}})
		if err != nil {
			return false, err
		}
		waiting = waiting || back
	}
	return waiting, nil
}
