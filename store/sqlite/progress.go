package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// Report stores what a running handler says of itself.
func (s *Store) Report(ctx context.Context, holder store.Holder, report store.Report) error {
	var stored int64
	err := s.write(ctx, enqueues, func(ctx context.Context, c *change) (err error) {
		stored, err = c.Report(ctx, queries.ReportParams{
			UpdatedAt: c.now, Fraction: report.Fraction, Note: report.Note, Checkpoint: report.Checkpoint,
			RunID: holder.Run[:], ClaimID: holder.Claim[:],
		})
		return err
	})
	if busy(err) {
		err = fmt.Errorf("%w: the file stays locked, by a transaction of the handler's own or by another: %w", store.ErrConflict, err)
	}
	if err == nil && stored == 0 {
		err = fmt.Errorf("run %s: %w", holder.Run, lease.ErrLost)
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Checkpoint returns the run's last checkpoint, or nil.
func (s *Store) Checkpoint(ctx context.Context, id store.RunID) ([]byte, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", s.explain(err))
	}
	text, err := reader.FindCheckpoint(ctx, queries.FindCheckpointParams{RunID: id[:]})
	if err := unlessNone(err); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", s.explain(err))
	}
	return text, nil
}

// progressOf reads what a run has last reported; nil is nothing.
func progressOf(ctx context.Context, reader *queries.Queries, id store.RunID) (*store.Progress, error) {
	row, err := reader.FindProgress(ctx, queries.FindProgressParams{RunID: id[:]})
	if errors.Is(err, sql.ErrNoRows) || err == nil && row.Fraction == nil && row.Note == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	progress := &store.Progress{At: instant(row.UpdatedAt)}
	if row.Fraction != nil {
		progress.Fraction = *row.Fraction
	}
	if row.Note != nil {
		progress.Note = *row.Note
	}
	return progress, nil
}

// addProgress completes records, some of whose runs may have reported progress.
func addProgress(ctx context.Context, reader *queries.Queries, records []store.Record) (err error) {
	for i := range records {
		if records[i].StartedAt == nil {
			continue
		}
		if records[i].Progress, err = progressOf(ctx, reader, records[i].ID); err != nil {
			return err
		}
	}
	return nil
}

// chosen reads the list of runs that are named.
func chosen(ctx context.Context, reader *queries.Queries, ids []store.RunID, ask queries.ListRunsParams) ([]listed, error) {
	found, err := reader.ListChosen(ctx, queries.ListChosenParams{
		Ids: list(inHex(ids)), Below: ask.Below, FromID: ask.FromID, States: ask.States, Jobs: ask.Jobs, Queues: ask.Queues, Tag: ask.Tag, Chosen: ask.Chosen, Most: ask.Most,
	})
	rows := make([]listed, len(found))
	for i := range found {
		rows[i] = listed(found[i])
	}
	return rows, err
}

// inHex writes ids as statements read them.
func inHex(ids []store.RunID) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = hex.EncodeToString(id[:])
	}
	return texts
}
