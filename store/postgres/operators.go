package postgres

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// Examine looks for what would hurt later; see store.Examiner.
func (s *Store) Examine(ctx context.Context) (store.Findings, error) { return s.examiner.Examine(ctx) }
