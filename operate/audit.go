package operate

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
)

// ChangeList is a page of the audit log, newest first.
type ChangeList struct {
	Changes []store.Change `json:"changes"`
	Next    *int64         `json:"next"` // the Before of the next page; nil: this was the last one
}

// Changes lists changes that operators, and policies on their behalf, have made.
// The oldest may have been removed. Where few changes pass the filter, the list
// stops after about three seconds, with a page that may be shorter, or empty, and
// a Next.
func (o *Operator) Changes(ctx context.Context, filter store.ChangeFilter) (ChangeList, error) {
	list := ChangeList{Changes: []store.Change{}}
	want, err := filter.Most()
	if err != nil {
		return list, err
	}
	for began := o.config.Now(); ; {
		filter.Limit = want - len(list.Changes)
		page, err := o.store.Changes(ctx, filter)
		if err != nil {
			return list, err
		}
		o.showChanges(page.Changes)
		list.Changes = append(list.Changes, page.Changes...)
		if page.Next == 0 {
			list.Next = nil
			return list, nil
		}
		list.Next = &page.Next
		if len(list.Changes) >= want || o.config.Now().Sub(began) > listFor {
			return list, nil
		}
		filter.Before = page.Next
	}
}
