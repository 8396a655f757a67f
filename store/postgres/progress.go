package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Report stores what a running handler says of itself. When the row of the run
// is locked it tries again for about a second, and holds no connection between
// its tries: the lock may be that of a transaction of the handler's own, and many
// handlers may have one.
func (s *Store) Report(ctx context.Context, holder store.Holder, report store.Report) error {
	if err := s.schema.Usable(ctx); err != nil {
		return s.db.Fail("report", err)
	}
	var fraction *float32
	if report.Fraction != nil {
		f := float32(*report.Fraction)
		fraction = &f
	}
	var checkpoint *string
	if report.Checkpoint != nil {
		text := string(report.Checkpoint)
		checkpoint = &text
	}
	var stored int64
	try := func() error {
		b := s.db.GuardedFor(ctx, conn.HolderPatience)
		b.Add(queries.Report, fraction, report.Note, checkpoint, holder.Run, uuid.UUID(holder.Claim)).Exec(func(tag pgconn.CommandTag) error {
			stored = tag.RowsAffected()
			return nil
		})
		return s.db.Send(ctx, s.db.Aloof(), b)
	}
	err := conn.Insist(ctx, try)
	if conn.Code(err) == conn.LockNotAvailable {
		err = fmt.Errorf("%w: another transaction keeps the run locked, such as the handler's own transaction after Guard or CompleteIn: %w", store.ErrConflict, err)
	}
	if err != nil {
		return s.db.Fail("report", err)
	}
	if stored == 0 {
		return fmt.Errorf("report: run %s: %w", holder.Run, lease.ErrLost)
	}
	return nil
}

// Checkpoint returns the run's last checkpoint, or nil.
func (s *Store) Checkpoint(ctx context.Context, id store.RunID) ([]byte, error) {
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("checkpoint", err)
	}
	texts, err := s.db.Queries(s.db.Aloof()).Checkpoint(ctx, queries.CheckpointParams{RunID: id})
	if err != nil {
		return nil, s.db.Fail("checkpoint", err)
	}
	if len(texts) == 0 {
		return nil, nil
	}
	return []byte(texts[0]), nil
}
