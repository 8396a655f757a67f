package operate

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/durable-worker/durable-worker/store"
)

// Bulk is the progress of a change to all runs that match a filter.
type Bulk struct {
	Seen            int         `json:"seen"` // runs that matched
	Changed         int         `json:"changed"`
	CancelRequested int         `json:"cancel_requested"`
	Unchanged       int         `json:"unchanged"`
	Conflict        int         `json:"conflict"`
	Locked          int         `json:"locked"`
	NotFound        int         `json:"not_found"` // deleted after they were listed and before they were changed
	Next            store.RunID `json:"next"`      // as Filter.Before, it continues from here; the zero id: all are done
}

// CancelAll cancels the runs that match, pending and running ones unless the
// filter names states.
//
// It goes through the runs newest first, a page at a time, and calls progress,
// which may be nil, after each page. A run that is created, or begins to match,
// after its page has passed is not changed. It stops when ctx ends, and at the
// first error; to continue, call it again with Filter.Before set to the Next of
// what it returned. The changes made until then stay.
func (a *Actor) CancelAll(ctx context.Context, filter store.Filter, reason string, progress func(Bulk)) (Bulk, error) {
	return a.changeAll(ctx, store.CancelRuns, filter, reason, progress)
}

// RetryAll retries the runs that match, dead and cancelled ones unless the
// filter names states; otherwise like CancelAll.
func (a *Actor) RetryAll(ctx context.Context, filter store.Filter, reason string, progress func(Bulk)) (Bulk, error) {
	return a.changeAll(ctx, store.RetryRuns, filter, reason, progress)
}

// DeleteAll deletes the runs that match, finished ones unless the filter names
// states; otherwise like CancelAll.
func (a *Actor) DeleteAll(ctx context.Context, filter store.Filter, reason string, progress func(Bulk)) (Bulk, error) {
	return a.changeAll(ctx, store.DeleteRuns, filter, reason, progress)
}

func (a *Actor) changeAll(ctx context.Context, action store.RunAction, filter store.Filter, reason string, progress func(Bulk)) (Bulk, error) {
	if len(filter.States) == 0 {
		filter.States = action.States()
	}
	filter.Limit = store.LargestPage
	done := Bulk{Next: filter.Before}
	for {
		filter.Before = done.Next
		page, err := a.store.Runs(ctx, filter)
		if err != nil {
			return done, fmt.Errorf("%s runs: %w", action, err)
		}
		ids := make([]store.RunID, len(page.Runs))
		for i := range page.Runs {
			ids[i] = page.Runs[i].ID
		}
		changed, err := a.change(ctx, action, reason, ids)
		if err != nil {
			return done, err
		}
		done.add(changed.Runs)
		done.Next = page.Next
		if progress != nil {
			progress(done)
		}
		if page.Next == (store.RunID{}) {
			return done, nil
		}
	}
}

// Matching counts the runs that a change to all runs of a filter is about. It is
// not known when the filter has more than states: counting would read all runs.
func (o *Operator) Matching(ctx context.Context, action store.RunAction, filter store.Filter) (total store.Count, known bool) {
	if len(filter.Jobs)+len(filter.Queues) > 0 || filter.Tag != "" || !filter.Since.IsZero() || !filter.Until.IsZero() || filter.Before != (store.RunID{}) {
		return total, false
	}
	counts, err := o.store.Counts(ctx)
	if err != nil {
		return total, false
	}
	states := filter.States
	if len(states) == 0 {
		states = action.States()
	}
	for _, state := range states {
		total = total.Plus(counts[state])
	}
	return total, true
}

// MarshalJSON writes the cursor of a change that is done as null.
func (b Bulk) MarshalJSON() ([]byte, error) {
	type plain Bulk
	written := struct {
		plain
		Next *store.RunID `json:"next"`
	}{plain: plain(b)}
	if b.Next != (store.RunID{}) {
		written.Next = &b.Next
	}
	return json.Marshal(written)
}

// add counts the results of some runs.
func (b *Bulk) add(changed []store.ChangedRun) {
	b.Seen += len(changed)
	counters := map[store.ChangeResult]*int{
		store.RunChanged: &b.Changed, store.CancelRequested: &b.CancelRequested, store.RunUnchanged: &b.Unchanged,
		store.RunNotFound: &b.NotFound, store.RunConflict: &b.Conflict, store.RunLocked: &b.Locked,
	}
	for _, c := range changed {
		*counters[c.Result]++
	}
}
