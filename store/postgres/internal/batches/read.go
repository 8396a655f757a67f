package batches

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Of returns a batch; see store.Batches.
func (s *Batches) Of(ctx context.Context, id store.BatchID) (store.Batch, error) {
	if err := s.schema.Usable(ctx); err != nil {
		return store.Batch{}, s.db.Fail("batch", err)
	}
	var found []store.Batch
	b := s.db.HotAloof(ctx)
	b.Add(queries.BatchesByID, conn.UUIDs{id}).Query(scanBatches(&found))
	if err := s.db.Send(ctx, s.db.Aloof(), b); err != nil {
		return store.Batch{}, s.db.Fail("batch", err)
	}
	if len(found) == 0 {
		return store.Batch{}, rules.UnknownBatch(id)
	}
	return found[0], nil
}

// Page lists batches, newest first; see store.Batches.
func (s *Batches) Page(ctx context.Context, filter *store.BatchFilter) ([]store.Batch, error) {
	most, err := filter.Most()
	if err != nil {
		return nil, err
	}
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("batches", err)
	}
	var before *uuid.UUID
	if filter.Before != uuid.Nil {
		before = &filter.Before
	}
	states := make([]int16, len(filter.States))
	for i, state := range filter.States {
		states[i] = int16(state)
	}
	var ids conn.UUIDs
	b := s.db.Guarded(ctx)
	b.Add(queries.BatchPage, before, len(states) == 0, states, filter.Name, conn.Small(most)).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(id uuid.UUID) { ids = append(ids, id) })
	})
	if err := s.db.Send(ctx, s.db.General, b); err != nil {
		return nil, s.db.Fail("batches", err)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	var found []store.Batch
	b = s.db.Guarded(ctx)
	b.Add(queries.BatchesByID, ids).Query(scanBatches(&found))
	if err := s.db.Send(ctx, s.db.General, b); err != nil {
		return nil, s.db.Fail("batches", err)
	}
	return found, nil
}

// Members returns members of a batch; see store.Batches.
func (s *Batches) Members(ctx context.Context, id store.BatchID, after store.RunID, limit int) (page store.MemberPage, err error) {
	if _, err := s.Of(ctx, id); err != nil {
		return page, fmt.Errorf("members: %w", err)
	}
	limit = rules.MemberLimit(limit)
	b := s.db.HotAloof(ctx)
	b.Add(queries.MembersOf, id, after, conn.Small(limit+1)).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			outcome := store.RunOutcome{Found: true}
			var result string
			if err := rows.Scan(&outcome.ID, &outcome.Job, &outcome.State, &result, &outcome.Reason); err != nil {
				return err
			}
			if result != "" {
				outcome.Result = []byte(result)
			}
			page.Members = append(page.Members, outcome)
		}
		return rows.Err()
	})
	if err := s.db.Send(ctx, s.db.Aloof(), b); err != nil {
		return store.MemberPage{}, s.db.Fail("members", err)
	}
	if len(page.Members) > limit {
		page.Members = page.Members[:limit]
		page.Next = page.Members[limit-1].ID
	}
	return page, nil
}

// scanBatches reads rows of BatchesByID.
func scanBatches(into *[]store.Batch) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*into = nil
		for rows.Next() {
			var b store.Batch
			if err := rows.Scan(columns(&b)...); err != nil {
				return err
			}
			inUTC(&b)
			*into = append(*into, b)
		}
		return rows.Err()
	}
}

// columns are those that BatchesByID and FoldedBatches have in common.
func columns(b *store.Batch) []any {
	return []any{
		&b.ID, &b.Owner, &b.CreatedAt, &b.OpenUntil, &b.EndsBy, &b.FailedAt, &b.EndedAt,
		&b.Counts.Members, &b.Counts.Succeeded, &b.Counts.Dead, &b.Counts.Cancelled,
		&b.State, &b.Closed, &b.FailFast, &b.Cancelled, &b.Name, &b.Reason,
	}
}

func inUTC(b *store.Batch) {
	b.CreatedAt = b.CreatedAt.UTC()
	for _, at := range []*time.Time{b.OpenUntil, b.EndsBy, b.FailedAt, b.EndedAt} {
		if at != nil {
			*at = at.UTC()
		}
	}
}
