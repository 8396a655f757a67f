package operate

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// MinPrefix is the least number of characters of an id that name a run.
const MinPrefix = 8

// idForm is the form of a run's id, and of the beginning of one.
var idForm = regexp.MustCompile(`^[0-9a-f]{8}(-([0-9a-f]{0,4}|[0-9a-f]{4}-([0-9a-f]{0,4}|[0-9a-f]{4}-([0-9a-f]{0,4}|[0-9a-f]{4}-[0-9a-f]{0,12}))))?$`)

// CheckBatchID reports with ErrInvalid what can be neither the id of a batch nor the beginning of
// one.
func CheckBatchID(text string) error {
	if !idForm.MatchString(strings.ToLower(text)) {
		return fmt.Errorf("%w: %q is not a batch id (a UUID such as 0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e), nor the first %d or more characters of one", store.ErrInvalid, text, MinPrefix)
	}
	return nil
}

// CheckID reports with ErrInvalid what can be neither the id of a run nor the
// beginning of one.
func CheckID(text string) error {
	if !idForm.MatchString(strings.ToLower(text)) {
		return fmt.Errorf("%w: %q is not a run id (a UUID such as 0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e), nor the first %d or more characters of one", store.ErrInvalid, text, MinPrefix)
	}
	return nil
}

// FindID returns the id of the one run whose id begins with a text. A whole id is
// returned whether there is such a run or not. Without a run the error is
// ErrNotFound; of several, it is ErrInvalid and names the first of them.
func (o *Operator) FindID(ctx context.Context, text string) (store.RunID, error) {
	text = strings.ToLower(text)
	if err := CheckID(text); err != nil {
		return store.RunID{}, err
	}
	if id, err := store.ParseRunID(text); err == nil {
		return id, nil
	}
	page, err := o.store.Runs(ctx, store.Filter{Before: above(text), Limit: prefixMost})
	if err != nil {
		return store.RunID{}, err
	}
	ids := make([]uuid.UUID, len(page.Runs))
	for i := range page.Runs {
		ids[i] = page.Runs[i].ID
	}
	return theOne(text, "run", ids)
}

// FindBatch is FindID for a batch.
func (o *Operator) FindBatch(ctx context.Context, text string) (store.BatchID, error) {
	text = strings.ToLower(text)
	if err := CheckBatchID(text); err != nil {
		return store.BatchID{}, err
	}
	if id, err := uuid.Parse(text); err == nil {
		return id, nil
	}
	page, err := o.store.Batches(ctx, store.BatchFilter{Before: above(text), Limit: prefixMost})
	if err != nil {
		return store.BatchID{}, err
	}
	ids := make([]uuid.UUID, len(page))
	for i := range page {
		ids[i] = page[i].ID
	}
	return theOne(text, "batch", ids)
}

// prefixMost is how many ids are looked at, in case several begin alike.
const prefixMost = 5

// theOne is the only one of some ids, the largest first, that begins with a text.
func theOne(text, what string, ids []uuid.UUID) (uuid.UUID, error) {
	var found []string
	for _, id := range ids {
		if id := id.String(); strings.HasPrefix(id, text) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return uuid.UUID{}, fmt.Errorf("no %s has an id that begins with %s: %w", what, text, store.ErrNotFound)
	case 1:
		return ids[0], nil
	case prefixMost:
		found = append(found, "…")
	}
	return uuid.UUID{}, fmt.Errorf("%w: several %s have ids that begin with %s: %s", store.ErrInvalid, several[what], text, strings.Join(found, ", "))
}

// several are words for more than one of what has an id.
var several = map[string]string{"run": "runs", "batch": "batches"} //nolint:gochecknoglobals // a constant table

// above is the smallest id above all that begin with a text; the zero id where
// there is none.
func above(text string) store.RunID {
	const form = "ffffffff-ffff-ffff-ffff-ffffffffffff"
	id, _ := store.ParseRunID(text + form[len(text):]) // the text has been checked
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}
