package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// UseLimit takes places or starts of a limit for code outside of runs.
func (s *Store) UseLimit(ctx context.Context, request store.LimitRequest) (store.LimitGrant, error) {
	return s.worker.admitter.UseLimit(ctx, request)
}
