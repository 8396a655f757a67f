package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/durable"
)

// InsertIn is insert in a caller's transaction.
func (s *Store) InsertIn(ctx context.Context, tx pgx.Tx, runs ...durable.NewRun) ([]durable.Receipt, error) {
	return s.insert(ctx, tx, runs)
}
