package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/examine"
)

// Examine looks for what would hurt later; see store.Examiner.
func (s *Store) Examine(ctx context.Context) (store.Findings, error) {
	return examine.New(s.db, s.schema).Examine(ctx)
}
