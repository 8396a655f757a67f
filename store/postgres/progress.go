package postgres

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// insistPause is the first pause of a call whose row is locked; each further one is four
// times as long, which makes five tries in holderPatience.
const insistPause = 10 * time.Millisecond

// insist tries for about holderPatience while a row is locked. It holds no connection between
// its tries.
func insist(ctx context.Context, try func() error) error {
	err := try()
	for pause := insistPause; conn.Code(err) == conn.LockNotAvailable && pause < holderPatience && rest(ctx, pause); pause *= 4 {
		err = try()
	}
	return err
}

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
		b := s.db.GuardedFor(ctx, holderPatience)
		b.Add(queries.Report, fraction, report.Note, checkpoint, holder.Run, uuid.UUID(holder.Claim)).Exec(func(tag pgconn.CommandTag) error {
			stored = tag.RowsAffected()
			return nil
		})
		return s.db.Send(ctx, s.db.Aloof(), b)
	}
	err := insist(ctx, try)
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

// addProgress completes records, some of whose runs may have reported progress, with another
// question to where they came from.
func (s *Store) addProgress(ctx context.Context, to conn.Sender, records []store.Record) error {
	var ids conn.UUIDs
	for i := range records {
		if records[i].StartedAt != nil {
			ids = append(ids, records[i].ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	reported := map[store.RunID]*store.Progress{}
	b := s.db.Begin(ctx, to)
	b.Add(queries.ProgressOf, ids).Query(scanProgress(reported))
	if err := s.db.Send(ctx, to, b); err != nil {
		return err
	}
	for i := range records {
		records[i].Progress = reported[records[i].ID]
	}
	return nil
}

// scanProgress reads rows of ProgressOf.
func scanProgress(found map[store.RunID]*store.Progress) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			var p store.Progress
			if err := rows.Scan(&id, &p.Fraction, &p.Note, &p.At); err != nil {
				return err
			}
			p.Fraction, p.At = math.Round(p.Fraction*1e4)/1e4, p.At.UTC()
			found[id] = &p
		}
		return rows.Err()
	}
}
