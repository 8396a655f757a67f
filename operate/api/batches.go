package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/durable-worker/durable-worker/internal/wire"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
)

func batchRoutes() []route {
	return []route{
		{"GET /batches", []string{"state", "name", "cursor", "limit"}, listBatches},
		{"GET /batches/{id}", nil, getBatch},
		{"GET /batches/{id}/members", []string{"state", "cursor", "limit"}, listMembers},
		{"POST /batches/{id}/close", nil, closeBatch},
		{"POST /batches/{id}/cancel", nil, cancelBatch},
		{"POST /batches/{id}/retry", nil, retryBatch},
	}
}

func listBatches(c *call) (answer, error) {
	filter := store.BatchFilter{Name: c.Text("name"), Before: c.ID("cursor"), Limit: int(c.Number("limit", 1, store.LargestPage, 0))}
	for _, word := range c.Texts("state") {
		var state store.BatchState
		if err := state.UnmarshalText([]byte(word)); err != nil {
			c.Refuse("state", "%.150v", err)
			continue
		}
		filter.States = append(filter.States, state)
	}
	if err := c.Err(); err != nil {
		return answer{}, err
	}
	list, err := c.op.Batches(c.r.Context(), filter)
	return ok(list), err
}

// batch is the batch that the path names.
func (c *call) batch() (store.BatchID, error) {
	id, err := store.ParseRunID(c.r.PathValue("id"))
	if err != nil {
		return id, wire.InQuery("id", "the path must have the id of a batch, a UUID such as 0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e")
	}
	return id, c.Err()
}

func getBatch(c *call) (answer, error) {
	id, err := c.batch()
	if err != nil {
		return answer{}, err
	}
	detail, err := c.op.Batch(c.r.Context(), id)
	return ok(detail), err
}

func listMembers(c *call) (answer, error) {
	filter := operate.MemberFilter{After: c.ID("cursor"), Limit: int(c.Number("limit", 1, store.LargestPage, 0))}
	for _, word := range c.Texts("state") {
		state, err := store.ParseState(word)
		if err != nil {
			c.Refuse("state", "%.150v", err)
			continue
		}
		filter.States = append(filter.States, state)
	}
	var err error
	if filter.Batch, err = c.batch(); err != nil {
		return answer{}, err
	}
	list, err := c.op.Members(c.r.Context(), filter)
	return ok(list), err
}

func closeBatch(c *call) (answer, error) {
	id, err := c.batch()
	if err != nil {
		return answer{}, err
	}
	if err := c.body(&struct{}{}); err != nil {
		return answer{}, err
	}
	batch, err := c.op.CloseBatch(c.r.Context(), id)
	return ok(batch), err
}

func cancelBatch(c *call) (answer, error) {
	id, err := c.batch()
	if err != nil {
		return answer{}, err
	}
	var given reasoned
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	batch, err := c.op.CancelBatch(c.r.Context(), id, given.Reason)
	return answer{status: http.StatusAccepted, body: batch}, err // its members are cancelled one by one
}

// retryBatch begins a change in the background: a batch may have a million dead members.
func retryBatch(c *call) (answer, error) {
	id, err := c.batch()
	if err != nil {
		return answer{}, err
	}
	var given reasoned
	if err := c.body(&given); err != nil {
		return answer{}, err
	}
	status, err := c.op.StartRetryBatch(c.r.Context(), id, given.Reason)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusAccepted, header: map[string]string{"Location": "../../bulk/" + strconv.FormatInt(status.N, 10)}, body: bulkOf(status)}, nil
}

// newBatch is the batch that a new run belongs to.
type newBatch struct {
	ID         store.BatchID   `json:"id"`
	Name       string          `json:"name"` // empty: the batch must be there already
	OpenFor    *store.Duration `json:"open_for"`
	EndsWithin *store.Duration `json:"ends_within"`
	FailFast   bool            `json:"fail_fast"`
}

// stored is the batch as a store takes it; nil: the run belongs to none.
func (b *newBatch) stored() *store.NewBatch {
	if b == nil {
		return nil
	}
	made := &store.NewBatch{ID: b.ID, Name: b.Name, FailFast: b.FailFast}
	if b.OpenFor != nil {
		made.OpenFor = time.Duration(*b.OpenFor)
	}
	if b.EndsWithin != nil {
		made.EndsWithin = time.Duration(*b.EndsWithin)
	}
	return made
}
