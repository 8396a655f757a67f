package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// Enqueue stores all the runs or none. Calls that come at the same time share
// a transaction.
func (s *Store) Enqueue(ctx context.Context, runs ...store.NewRun) ([]store.Receipt, error) {
	if err := store.CheckRuns(runs); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if len(runs) == 0 {
		return nil, nil
	}
	if err := s.checkLimits(ctx, runs); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if store.AnyLinked(runs) {
		receipts, err := s.enqueueLinked(ctx, runs)
		if err != nil {
			return nil, fmt.Errorf("enqueue: %w", err)
		}
		return receipts, nil
	}
	c := &call{runs: runs}
	if err := s.enqueue(ctx, c); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	return c.receipts, nil
}

// store stores the runs of one call. Lanes that are made for it are noted in
// fresh; they count once the transaction is committed.
func (s *Store) store(ctx context.Context, c *change, fresh *lanes, call *call) error {
	if store.AnyLinked(call.runs) {
		return s.storeLinked(ctx, c, fresh, call)
	}
	return s.storeUnlinked(ctx, c, fresh, call)
}

// storeUnlinked is store without what the runs wait for.
func (s *Store) storeUnlinked(ctx context.Context, c *change, fresh *lanes, call *call) error {
	if rules.AnyKeyed(call.runs) || rules.AnyLimited(call.runs) {
		return s.storeKeyed(ctx, c, fresh, call)
	}
	rows := make([]queries.InsertRunParams, len(call.runs))
	for i := range rows {
		var err error
		if rows[i], err = s.row(ctx, c, fresh, &call.runs[i]); err != nil {
			return err
		}
	}
	stored, last, err := c.insert(ctx, rows)
	if err != nil {
		return err
	}
	first := last - stored + 1 // the numbers follow one another
	call.receipts = make([]store.Receipt, len(call.runs))
	for i := range call.runs {
		call.receipts[i] = store.Receipt{ID: call.runs[i].ID, Existing: stored == 0}
	}
	if stored == 0 {
		return nil
	}
	if stored < int64(len(rows)) {
		if err := c.tellExisting(ctx, first, call.receipts); err != nil {
			return err
		}
	}
	return c.InsertReadySince(ctx, queries.InsertReadySinceParams{First: first})
}

// insert stores the runs that are not there. last is the number of the last one
// stored, if any.
func (c *change) insert(ctx context.Context, rows []queries.InsertRunParams) (stored, last int64, err error) {
	for len(rows) > 0 {
		var result sql.Result
		n := 1
		if len(rows) >= rowsPerStep && c.insertRuns != nil {
			n = rowsPerStep
			args := make([]any, 0, rowsPerStep*columnsOfRun)
			for i := range rows[:n] {
				r := &rows[i]
				args = append(args, r.ID, r.CreatedAt, r.DueAt, r.ExpiresAt, r.Timeout, r.Lane, r.MaxAttempts, r.OnCrash, r.Tags, r.Metadata, r.Trace, r.Args)
			}
			result, err = c.insertRuns.ExecContext(ctx, args...)
		} else {
			result, err = c.InsertRun(ctx, rows[0])
		}
		if err != nil {
			return 0, 0, err
		}
		changed, err := result.RowsAffected()
		if err != nil {
			return 0, 0, err
		}
		if changed > 0 {
			if last, err = result.LastInsertId(); err != nil {
				return 0, 0, err
			}
		}
		stored, rows = stored+changed, rows[n:]
	}
	return stored, last, nil
}

// tellExisting marks the receipts of runs that were there before.
func (c *change) tellExisting(ctx context.Context, first int64, receipts []store.Receipt) error {
	ids, err := c.StoredSince(ctx, queries.StoredSinceParams{First: first})
	if err != nil {
		return err
	}
	stored := make(map[store.RunID]bool, len(ids))
	for _, id := range ids {
		stored[store.RunID(id)] = true
	}
	for i := range receipts {
		receipts[i].Existing = !stored[receipts[i].ID]
	}
	return nil
}

// rowsPerStep is how many runs one statement stores, where there are as many.
const (
	rowsPerStep  = 25
	columnsOfRun = 12
)

// row makes the row of a new run.
func (s *Store) row(ctx context.Context, c *change, fresh *lanes, r *store.NewRun) (queries.InsertRunParams, error) {
	lane, err := s.lane(ctx, c, fresh, laneName{r.Queue, r.Job, r.Priority})
	if err != nil {
		return queries.InsertRunParams{}, err
	}
	due := c.now + r.Delay().Microseconds()
	if !r.At.IsZero() {
		due = max(r.At.UnixMicro(), 0)
	}
	tags, err := tagsText(r.Tags)
	return queries.InsertRunParams{
		ID:          r.ID[:],
		CreatedAt:   c.now,
		DueAt:       due,
		ExpiresAt:   micros(r.ExpiresAt),
		Timeout:     r.Timeout.Microseconds(),
		Lane:        lane,
		MaxAttempts: int64(r.MaxAttempts),
		OnCrash:     int64(r.OnCrash),
		Tags:        tags,
		Metadata:    r.Metadata.Text(),
		Trace:       rules.TextOrNil(r.Trace),
		Args:        r.Args,
	}, err
}

// tagsText is how tags are stored; none are null.
func tagsText(tags []string) (*string, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(tags)
	if err != nil {
		return nil, err
	}
	stored := string(text)
	return &stored, nil
}

// tagsOf reads stored tags; no tags are an empty list.
func tagsOf(text *string) ([]string, error) {
	tags := []string{}
	if text == nil {
		return tags, nil
	}
	err := json.Unmarshal([]byte(*text), &tags)
	return tags, err
}

// metadataOf reads stored metadata.
func metadataOf(text *string) store.Metadata {
	if text == nil {
		return nil
	}
	return store.MetadataOf([]byte(*text))
}
