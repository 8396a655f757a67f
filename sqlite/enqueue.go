package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/sqlite/internal/queries"
)

// Enqueue stores all the runs or none. Calls that come at the same time share
// a transaction.
func (s *Store) Enqueue(ctx context.Context, runs ...durable.NewRun) ([]durable.Receipt, error) {
	if err := durable.CheckRuns(runs); err != nil {
		return nil, err
	}
	if len(runs) == 0 {
		return nil, nil
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
	if anyKeyed(call.runs) {
		return s.storeKeyed(ctx, c, fresh, call)
	}
	call.receipts = make([]durable.Receipt, len(call.runs))
	var first int64 // number of the first run stored
	for i := range call.runs {
		r := &call.runs[i]
		row, err := s.row(ctx, c, fresh, r)
		if err != nil {
			return err
		}
		result, err := c.InsertRun(ctx, row)
		if err != nil {
			return err
		}
		stored, err := result.RowsAffected()
		if err != nil {
			return err
		}
		call.receipts[i] = durable.Receipt{ID: r.ID, Existing: stored == 0}
		if stored > 0 && first == 0 {
			if first, err = result.LastInsertId(); err != nil {
				return err
			}
		}
	}
	if first == 0 {
		return nil
	}
	return c.InsertReadySince(ctx, queries.InsertReadySinceParams{First: first})
}

// row makes the row of a new run.
func (s *Store) row(ctx context.Context, c *change, fresh *lanes, r *durable.NewRun) (queries.InsertRunParams, error) {
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
		Trace:       textOrNil(r.Trace),
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
