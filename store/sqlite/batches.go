package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

func batchOf(row *queries.Batch) store.Batch {
	b := store.Batch{
		ID: store.BatchID(row.ID), Name: row.Name, State: store.BatchState(row.State), Reason: row.Reason, //nolint:gosec // 0 to 3
		Counts: store.BatchCounts{Members: row.Members, Succeeded: row.Succeeded, Dead: row.Dead, Cancelled: row.Cancelled},
		Closed: row.IsClosed != 0, FailFast: row.FailFast != 0, Cancelled: row.IsCancelled != 0, CreatedAt: instant(row.CreatedAt),
		OpenUntil: instantOrNil(row.OpenUntil), EndsBy: instantOrNil(row.EndsBy),
		FailedAt: instantOrNil(row.FailedAt), EndedAt: instantOrNil(row.EndedAt),
	}
	if len(row.Owner) > 0 {
		owner := store.RunID(row.Owner)
		b.Owner = &owner
	}
	return b
}

// findBatch reads a batch, or answers that there is none.
func findBatch(ctx context.Context, from *queries.Queries, id store.BatchID) (store.Batch, error) {
	row, err := from.FindBatch(ctx, queries.FindBatchParams{ID: id[:]})
	if errors.Is(err, sql.ErrNoRows) {
		err = rules.UnknownBatch(id)
	}
	if err != nil {
		return store.Batch{}, err
	}
	return batchOf(&row), nil
}

// Batch returns a batch; see store.Batches.
func (s *Store) Batch(ctx context.Context, id store.BatchID) (b store.Batch, err error) {
	reader, err := s.read(ctx)
	if err == nil {
		b, err = findBatch(ctx, reader.Queries, id)
	}
	if err != nil {
		return store.Batch{}, fmt.Errorf("batch: %w", s.explain(err))
	}
	return b, nil
}

// Batches lists batches, newest first; see store.Batches.
func (s *Store) Batches(ctx context.Context, filter store.BatchFilter) ([]store.Batch, error) {
	most, err := filter.Most()
	if err != nil {
		return nil, fmt.Errorf("batches: %w", err)
	}
	rows, err := s.listBatches(ctx, &filter, int64(most))
	if err != nil {
		return nil, fmt.Errorf("batches: %w", s.explain(err))
	}
	found := make([]store.Batch, len(rows))
	for i := range rows {
		found[i] = batchOf(&rows[i])
	}
	return found, nil
}

// afterEveryID is behind each id in the order of SQLite.
var afterEveryID = bytes.Repeat([]byte{0xff}, 17) //nolint:gochecknoglobals // a constant

// listBatches reads the batches of a filter in one snapshot. Without a name, each state is read by
// its own index.
func (s *Store) listBatches(ctx context.Context, filter *store.BatchFilter, most int64) (rows []queries.Batch, err error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	before := afterEveryID
	if (filter.Before != store.BatchID{}) {
		before = filter.Before[:]
	}
	if filter.Name != "" {
		states := make([]int8, len(filter.States))
		for i, state := range filter.States {
			states[i] = int8(state)
		}
		text, err := json.Marshal(states)
		if err != nil {
			return nil, err
		}
		return reader.ListBatchesNamed(ctx, queries.ListBatchesNamedParams{Name: filter.Name, Before: before, States: string(text), Most: most})
	}
	if len(filter.States) == 0 {
		return reader.ListBatches(ctx, queries.ListBatchesParams{Before: before, Most: most})
	}
	tx, err := s.reads.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // it has only read
	snapshot := reader.WithTx(tx)
	states := slices.Clone(filter.States)
	slices.Sort(states)
	for _, state := range slices.Compact(states) {
		of, err := snapshot.ListBatchesOf(ctx, queries.ListBatchesOfParams{State: int64(state), Before: before, Most: most})
		if err != nil {
			return nil, err
		}
		rows = append(rows, of...)
	}
	slices.SortFunc(rows, func(a, b queries.Batch) int { return bytes.Compare(b.ID, a.ID) })
	return rows[:min(int(most), len(rows))], nil
}

// Members returns members of a batch, in the order of their ids; see store.Batches.
func (s *Store) Members(ctx context.Context, id store.BatchID, after store.RunID, limit int) (page store.MemberPage, err error) {
	reader, err := s.read(ctx)
	if err == nil {
		_, err = findBatch(ctx, reader.Queries, id)
	}
	if err != nil {
		return page, fmt.Errorf("members: %w", s.explain(err))
	}
	limit = rules.MemberLimit(limit)
	rows, err := reader.ListMembers(ctx, queries.ListMembersParams{Batch: id[:], After: after[:], Most: int64(limit) + 1})
	if err != nil {
		return page, fmt.Errorf("members of batch %s: %w", id, s.explain(err))
	}
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = store.RunID(rows[limit-1].ID)
	}
	for i := range rows {
		row := &rows[i]
		page.Members = append(page.Members, store.RunOutcome{
			ID: store.RunID(row.ID), Found: true, Job: row.Job, State: store.State(row.State), Result: row.Result, Reason: row.Reason, //nolint:gosec // 0 to 5
		})
	}
	return page, nil
}

// CloseBatch closes a batch; see store.Batches.
func (s *Store) CloseBatch(ctx context.Context, closing store.BatchClose) error {
	err := s.changeBatch(ctx, closing.ID, func(ctx context.Context, c *change, b *store.Batch) error {
		if b.Closed {
			return nil
		}
		return errors.Join(
			c.CloseBatch(ctx, queries.CloseBatchParams{ID: closing.ID[:]}),
			c.audit(ctx, rules.KindBatch, closing.ID.String(), rules.BatchCloses, closing.By, nil),
		)
	})
	if err != nil {
		return fmt.Errorf("close batch: %w", err)
	}
	return nil
}

// CancelBatch has the members of a batch cancelled; see store.Batches.
func (s *Store) CancelBatch(ctx context.Context, cancel store.BatchCancel) error {
	if err := cancel.Check(); err != nil {
		return fmt.Errorf("cancel batch: %w", err)
	}
	err := s.changeBatch(ctx, cancel.ID, func(ctx context.Context, c *change, b *store.Batch) error {
		if b.EndedAt != nil || b.Cancelled {
			return nil
		}
		rules.CancelBatch(b, cancel.Reason)
		return errors.Join(
			c.CancelBatch(ctx, queries.CancelBatchParams{Reason: b.Reason, Cursor: firstMember, ID: cancel.ID[:]}),
			c.audit(ctx, rules.KindBatch, cancel.ID.String(), string(store.CancelRuns), cancel.By, nil),
		)
	})
	if err != nil {
		return fmt.Errorf("cancel batch: %w", err)
	}
	return nil
}

// changeBatch changes a batch, and decides about it.
func (s *Store) changeBatch(ctx context.Context, id store.BatchID, work func(context.Context, *change, *store.Batch) error) error {
	err := s.writeAround(ctx, reclaims, func(ctx context.Context, c *change) error {
		b, err := findBatch(ctx, c.Queries, id)
		if err != nil {
			return err
		}
		if err := work(ctx, c, &b); err != nil {
			return err
		}
		_, err = s.releaseNoticed(ctx, c, ownNotices)
		return err
	})
	if err == nil {
		s.hint()
	}
	return err
}

// AwaitBatch closes the holder's batch, and has its end noted for a step; see store.BatchWaiter.
func (s *Store) AwaitBatch(ctx context.Context, holder store.Holder, id store.BatchID, name string) (b store.Batch, err error) {
	if err := store.CheckStepName(name); err != nil {
		return store.Batch{}, fmt.Errorf("wait for batch %s: %w", id, err)
	}
	err = s.write(ctx, settles, func(ctx context.Context, c *change) error {
		if err := c.holds(ctx, holder); err != nil {
			return err
		}
		if b, err = findBatch(ctx, c.Queries, id); err != nil {
			return err
		}
		if b.Owner == nil || *b.Owner != holder.Run {
			return rules.UnknownBatch(id)
		}
		b.Closed = true
		edge := rules.Edge{Waiter: holder.Run, Source: id, Want: rules.WantOf(store.WantEnded, true), Name: name}
		return errors.Join(c.CloseBatch(ctx, queries.CloseBatchParams{ID: id[:]}), c.insertEdge(ctx, &edge))
	})
	if err != nil {
		return store.Batch{}, fmt.Errorf("wait for batch %s: %w", id, heldByAnother(err))
	}
	return b, nil
}
