package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// Bulk is the progress of a change to all runs that match a filter.
type Bulk struct {
	Seen            int `json:"seen"` // runs that matched
	Changed         int `json:"changed"`
	CancelRequested int `json:"cancel_requested"`
	Unchanged       int `json:"unchanged"`
	Conflict        int `json:"conflict"`
	Locked          int `json:"locked"`
	NotFound        int `json:"not_found"` // deleted after they were listed and before they were changed
	// PendingToo is how many pending runs pass the filter too and were not meant,
	// because DeleteAll leaves them out unless the filter names their state.
	PendingToo store.Count `json:"pending_too,omitzero"`
	Next       store.RunID `json:"next"` // as Filter.Before, it continues from here; the zero id: all are done
}

// CancelAll cancels the runs that match, pending and running ones unless the
// filter names states.
//
// It goes through the runs newest first, a page at a time, and calls progress,
// which may be nil, after each page. A run that is created, or begins to match,
// after its page has passed is not changed. The audit log has one row for all of it,
// of the kind bulk. It stops when ctx ends, and at the
// first error; to continue, call it again with Filter.Before set to the Next of
// what it returned. The changes made until then stay.
func (a *Actor) CancelAll(ctx context.Context, filter store.Filter, reason string, progress func(Bulk)) (Bulk, error) {
	return a.ChangeAll(ctx, BulkOrder{Action: store.CancelRuns, Filter: filter, Reason: reason}, progress)
}

// RetryAll retries the runs that match, dead and cancelled ones unless the
// filter names states; otherwise like CancelAll.
func (a *Actor) RetryAll(ctx context.Context, filter store.Filter, reason string, progress func(Bulk)) (Bulk, error) {
	return a.ChangeAll(ctx, BulkOrder{Action: store.RetryRuns, Filter: filter, Reason: reason}, progress)
}

// DeleteAll deletes the runs that match, finished ones unless the filter names
// states; otherwise like CancelAll. When it is done, Bulk.PendingToo says how many
// pending runs match the rest of the filter.
func (a *Actor) DeleteAll(ctx context.Context, filter store.Filter, reason string, progress func(Bulk)) (Bulk, error) {
	return a.ChangeAll(ctx, BulkOrder{Action: store.DeleteRuns, Filter: filter, Reason: reason}, progress)
}

// AcknowledgeAll acknowledges the runs that match, dead ones unless the filter names
// states; otherwise like CancelAll.
func (a *Actor) AcknowledgeAll(ctx context.Context, filter store.Filter, reason string, progress func(Bulk)) (Bulk, error) {
	return a.ChangeAll(ctx, BulkOrder{Action: store.AcknowledgeRuns, Filter: filter, Reason: reason}, progress)
}

// ChangeAll does what an order says, as CancelAll, RetryAll, DeleteAll and AcknowledgeAll
// do.
func (a *Actor) ChangeAll(ctx context.Context, order BulkOrder, progress func(Bulk)) (Bulk, error) {
	if order.Batch != nil {
		return a.changeMembers(ctx, order, progress)
	}
	bulk := &store.BulkChange{ID: uuid.New(), Filter: order.Filter}
	bulk.Filter.States = statesOf(order.Action, order.Filter)
	done, err := a.eachPage(ctx, order.Action, order.Filter, progress, func(page []store.Record) ([]store.ChangedRun, error) {
		ids := make([]store.RunID, len(page))
		for i := range page {
			ids[i] = page[i].ID
		}
		changed, err := a.Change(ctx, store.RunCommand{Action: order.Action, Reason: order.Reason, Bulk: bulk, Runs: ids})
		return changed.Runs, err
	})
	a.noteBulk(bulk, order.Action, order.Reason, done)
	return done, err
}

// PreviewAll is what CancelAll, RetryAll or DeleteAll would do now, and changes
// nothing. A run whose unique key another run holds is counted as one that would
// be retried.
func (o *Operator) PreviewAll(ctx context.Context, action store.RunAction, filter store.Filter, progress func(Bulk)) (Bulk, error) {
	command := store.RunCommand{Action: action, By: "preview"}
	if err := command.Check(); err != nil {
		return Bulk{}, fmt.Errorf("%s runs: %w", action, err)
	}
	return o.eachPage(ctx, action, filter, progress, func(page []store.Record) ([]store.ChangedRun, error) {
		changed := make([]store.ChangedRun, len(page))
		for i := range page {
			effect := rules.Permit(action, rules.Operable{State: page[i].State})
			changed[i] = store.ChangedRun{ID: page[i].ID, Result: effect.Result, State: effect.State}
		}
		return changed, nil
	})
}

// eachPage goes through the runs that an action on all runs of a filter is about,
// and adds up what do makes of each page of them.
func (o *Operator) eachPage(ctx context.Context, action store.RunAction, filter store.Filter, progress func(Bulk),
	do func(page []store.Record) ([]store.ChangedRun, error),
) (Bulk, error) {
	if err := o.MayFind(filter); err != nil {
		return Bulk{}, fmt.Errorf("%s runs: %w", action, err)
	}
	hidden, err := o.redactions(ctx)
	if err != nil {
		return Bulk{}, fmt.Errorf("%s runs: %w", action, err)
	}
	given := filter
	filter.States = statesOf(action, filter)
	filter.Limit = store.LargestPage
	done := Bulk{Next: filter.Before}
	for {
		filter.Before = done.Next
		page, err := o.store.Runs(ctx, filter)
		if err != nil {
			return done, fmt.Errorf("%s runs: %w", action, err)
		}
		changed, err := do(slices.DeleteFunc(page.Runs, func(run store.Record) bool { return !hidden.found(&run, &filter) }))
		if err != nil {
			return done, err
		}
		done.add(changed)
		done.Next = page.Next
		if progress != nil {
			progress(done)
		}
		if page.Next == (store.RunID{}) {
			done.PendingToo = o.pendingToo(ctx, action, given)
			return done, nil
		}
	}
}

// statesOf are the states of the runs that an action on all runs of a filter is
// about.
func statesOf(action store.RunAction, filter store.Filter) []store.State {
	if len(filter.States) > 0 {
		return filter.States
	}
	return action.States()
}

// pendingToo counts the pending runs that a deletion without states has left
// out. Without an answer there is nothing to say of them.
func (o *Operator) pendingToo(ctx context.Context, action store.RunAction, filter store.Filter) store.Count {
	if action != store.DeleteRuns || len(filter.States) > 0 {
		return store.Count{}
	}
	filter.States = []store.State{store.Pending}
	counts, err := o.CountMatching(ctx, filter)
	if err != nil {
		return store.Count{}
	}
	return counts.Counts[store.Pending]
}

// lately is how long ago a filter may end that is taken for one that ends now.
const lately = time.Minute

// Matching counts the runs that a change to all runs of a filter affects. It is
// not known when the filter has a cursor, or the store does not answer. All runs of some
// states, of a store that is large, are about as many as LastCounts says: they are not
// counted again.
func (o *Operator) Matching(ctx context.Context, action store.RunAction, filter store.Filter) (total store.Count, known bool) {
	if filter.Before != (store.RunID{}) {
		return total, false
	}
	filter.States = statesOf(action, filter)
	if all, known := o.allOf(ctx, filter); known {
		return all, true
	}
	counted, err := o.CountMatching(ctx, filter)
	if err != nil {
		return total, false
	}
	for _, count := range counted.Counts {
		total = total.Plus(count)
	}
	return total, true
}

// allOf is about how many runs pass a filter that asks for nothing but states, and that
// they were created before now, where counting them takes long.
func (o *Operator) allOf(ctx context.Context, filter store.Filter) (total store.Count, known bool) {
	if o.config.Now().Sub(filter.Until) < lately {
		filter.Until = time.Time{}
	}
	if filter.Narrow() {
		return total, false
	}
	counts, known := o.slowCounts(ctx)
	for _, state := range filter.States {
		total = total.Plus(counts.Counts[state])
	}
	total.Estimated = !total.AtLeast // they were counted a while ago
	return total, known
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
