package operate

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/durable-worker/durable-worker/store"
)

// MinPrefix is the least number of characters of an id that name a run.
const MinPrefix = 8

// idForm is the form of a run's id, and of the beginning of one.
var idForm = regexp.MustCompile(`^[0-9a-f]{8}(-([0-9a-f]{0,4}|[0-9a-f]{4}-([0-9a-f]{0,4}|[0-9a-f]{4}-([0-9a-f]{0,4}|[0-9a-f]{4}-[0-9a-f]{0,12}))))?$`)

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
	const most = 5
	page, err := o.store.Runs(ctx, store.Filter{Before: above(text), Limit: most})
	if err != nil {
		return store.RunID{}, err
	}
	var found []string
	for i := range page.Runs {
		if id := page.Runs[i].ID.String(); strings.HasPrefix(id, text) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return store.RunID{}, fmt.Errorf("no run has an id that begins with %s: %w", text, store.ErrNotFound)
	case 1:
		return page.Runs[0].ID, nil
	case most:
		found = append(found, "…")
	}
	return store.RunID{}, fmt.Errorf("%w: several runs have ids that begin with %s: %s", store.ErrInvalid, text, strings.Join(found, ", "))
}

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
