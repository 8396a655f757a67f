package operate

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// ChangeList is a page of the audit, newest first.
type ChangeList struct {
	Changes []store.Change `json:"changes"`
	Next    *int64         `json:"next"` // the Before of the next page; nil: this was the last one
}

// Changes lists changes that operators, and policies on their behalf, have made.
// The oldest may have been removed.
func (o *Operator) Changes(ctx context.Context, filter store.ChangeFilter) (ChangeList, error) {
	limit, err := filter.Most()
	if err != nil {
		return ChangeList{Changes: []store.Change{}}, err
	}
	changes, err := o.store.Changes(ctx, filter)
	list := ChangeList{Changes: whole(changes)}
	if len(changes) == limit {
		list.Next = &changes[limit-1].ID
	}
	return list, err
}
