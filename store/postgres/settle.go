package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// Settle ends executions, all in one transaction.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	return s.worker.settler.Settle(ctx, settlements)
}

// StillHeld returns those of the runs that are running under their claims.
func (s *Store) StillHeld(ctx context.Context, holders []store.Holder) (held []store.RunID, err error) {
	return s.worker.settler.StillHeld(ctx, holders)
}
