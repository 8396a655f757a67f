package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// Sweep makes one step of the walk along the ids, and where that has come to its end, one of
// the full pass.
func (s *Store) Sweep(ctx context.Context, request store.SweepRequest) (store.SweepResult, error) {
	return s.sweeper.Sweep(ctx, request)
}
