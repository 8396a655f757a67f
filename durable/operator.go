package durable

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/durable-worker/durable-worker/store"
)

// Operator is the door of those who operate: people, and programs in their
// place. Its methods may be called from many goroutines.
type Operator struct {
	store interface {
		store.Controls
		store.Inspector
		store.Catalog
		store.Waker
	}
	by string
}

// NewOperator returns an operator of a store. by is who asks; it stands in the
// audit beside every change.
func NewOperator(store Store, by string) *Operator { return &Operator{store: store, by: by} }

// Cancel asks for runs to be cancelled (see CancelRuns); an empty reason is
// "cancelled by" the operator. Runs beyond MaxCommandRuns are further orders: an
// error then tells nothing of the runs of earlier ones, and Cancel may be
// called again.
func (o *Operator) Cancel(ctx context.Context, reason string, runs ...RunID) ([]store.ChangedRun, error) {
	return o.order(ctx, store.CancelRuns, reason, runs)
}

// Retry makes dead or cancelled runs pending again (see RetryRuns).
func (o *Operator) Retry(ctx context.Context, reason string, runs ...RunID) ([]store.ChangedRun, error) {
	return o.order(ctx, store.RetryRuns, reason, runs)
}

// Delete removes runs that are not running (see DeleteRuns).
func (o *Operator) Delete(ctx context.Context, reason string, runs ...RunID) ([]store.ChangedRun, error) {
	return o.order(ctx, store.DeleteRuns, reason, runs)
}

func (o *Operator) order(ctx context.Context, action store.RunAction, reason string, runs []RunID) ([]store.ChangedRun, error) {
	if err := (&store.RunCommand{Action: action, Reason: reason, By: o.by}).Check(); err != nil {
		return nil, fmt.Errorf("%s runs: %w", action, err) // also where there is no run to refuse it for
	}
	changed := make([]store.ChangedRun, 0, len(runs))
	for start := 0; start < len(runs); start += store.MaxCommandRuns {
		part := runs[start:min(start+store.MaxCommandRuns, len(runs))]
		some, err := o.store.Operate(ctx, store.RunCommand{Action: action, Runs: part, Reason: reason, By: o.by})
		if err != nil {
			return changed, err
		}
		changed = append(changed, some...)
		o.announce(ctx, action, some)
	}
	return changed, nil
}

// announce tells the workers that have runs in hand which are to be cancelled,
// and those who wait for runs that have ended. Both look by themselves too.
func (o *Operator) announce(ctx context.Context, action store.RunAction, changed []store.ChangedRun) {
	asked := false
	for _, c := range changed {
		asked = asked || c.Result == store.CancelRequested
		if c.Result == store.RunChanged && action != store.RetryRuns {
			_ = o.store.Publish(ctx, store.Signal{Kind: store.RunEnded, Run: c.ID})
		}
	}
	if asked {
		_ = o.store.Publish(ctx, store.Signal{Kind: store.CancelAsked})
	}
}

// Rerun makes a new run of the same job, queue, priority, policy and tags as an
// earlier one, with its args unless others are given. It is due now; options
// change that, and whatever else they say. The crash policy is the job's, as a
// worker has declared it.
func (o *Operator) Rerun(ctx context.Context, id RunID, args json.RawMessage, options ...Option) (RunID, error) {
	record, err := o.store.Run(ctx, id)
	if err != nil {
		return RunID{}, fmt.Errorf("rerun: %w", err)
	}
	if args == nil {
		args = record.Args
	}
	jobs, err := o.store.Jobs(ctx)
	if err != nil {
		return RunID{}, fmt.Errorf("rerun: %w", err)
	}
	job := JobInfo{Name: record.Job, Queue: record.Queue, Priority: record.Priority, MaxAttempts: record.MaxAttempts, Timeout: record.Timeout}
	for _, declared := range jobs {
		if declared.Name == job.Name {
			job.OnCrash = declared.OnCrash
		}
	}
	run := RunOf(job, args, options...)
	if len(run.Tags) == 0 {
		run.Tags = record.Tags
	}
	if _, err := o.store.Rerun(ctx, id, run, o.by); err != nil {
		return RunID{}, err
	}
	return run.ID, nil
}

// PauseQueue stops claims from a queue (see Controls.SetQueue).
func (o *Operator) PauseQueue(ctx context.Context, name string) error {
	return o.setQueue(ctx, name, store.PauseQueue)
}

// ResumeQueue undoes PauseQueue.
func (o *Operator) ResumeQueue(ctx context.Context, name string) error {
	return o.setQueue(ctx, name, store.ResumeQueue)
}

func (o *Operator) setQueue(ctx context.Context, name string, action store.QueueAction) error {
	return o.store.SetQueue(ctx, name, action, o.by)
}

// Queues lists the queues that are known, by name.
func (o *Operator) Queues(ctx context.Context) ([]store.QueueInfo, error) {
	return o.store.Queues(ctx)
}

// Bulk is how far an action on all runs of a filter has come.
type Bulk struct {
	Seen            int   `json:"seen"` // runs that matched
	Changed         int   `json:"changed"`
	CancelRequested int   `json:"cancel_requested"`
	Unchanged       int   `json:"unchanged"`
	Conflict        int   `json:"conflict"`
	Locked          int   `json:"locked"`
	NotFound        int   `json:"not_found"` // deleted between the look and the action
	Next            RunID `json:"next"`      // as Filter.Before, it goes on from here; the zero id: it is through
}

// CancelAll cancels the runs that match, pending and running ones unless the
// filter names states.
//
// It goes through the runs newest first in steps of a page, and calls progress,
// which may be nil, after each. It acts on the runs that match when it comes to
// them: one that is made, or comes to match, behind it is not seen. It stops
// when ctx ends, and at the first error; with Filter.Before set to the Next of
// what it returned it goes on. What it has done then stays done.
func (o *Operator) CancelAll(ctx context.Context, filter Filter, reason string, progress func(Bulk)) (Bulk, error) {
	return o.all(ctx, store.CancelRuns, filter, reason, progress)
}

// RetryAll retries the runs that match, dead and cancelled ones unless the
// filter names states; as CancelAll.
func (o *Operator) RetryAll(ctx context.Context, filter Filter, reason string, progress func(Bulk)) (Bulk, error) {
	return o.all(ctx, store.RetryRuns, filter, reason, progress)
}

// DeleteAll deletes the runs that match, finished ones unless the filter names
// states; as CancelAll.
func (o *Operator) DeleteAll(ctx context.Context, filter Filter, reason string, progress func(Bulk)) (Bulk, error) {
	return o.all(ctx, store.DeleteRuns, filter, reason, progress)
}

func (o *Operator) all(ctx context.Context, action store.RunAction, filter Filter, reason string, progress func(Bulk)) (Bulk, error) {
	if len(filter.States) == 0 {
		filter.States = action.States()
	}
	filter.Limit = store.LargestPage
	done := Bulk{Next: filter.Before}
	for {
		filter.Before = done.Next
		page, err := o.store.Runs(ctx, filter)
		if err != nil {
			return done, fmt.Errorf("%s runs: %w", action, err)
		}
		ids := make([]RunID, len(page.Runs))
		for i := range page.Runs {
			ids[i] = page.Runs[i].ID
		}
		changed, err := o.order(ctx, action, reason, ids)
		if err != nil {
			return done, err
		}
		done.add(changed)
		done.Next = page.Next
		if progress != nil {
			progress(done)
		}
		if page.Next == (RunID{}) {
			return done, nil
		}
	}
}

// MarshalJSON writes the cursor of an action that is through as null.
func (b Bulk) MarshalJSON() ([]byte, error) {
	type plain Bulk
	written := struct {
		plain
		Next *RunID `json:"next"`
	}{plain: plain(b)}
	if b.Next != (RunID{}) {
		written.Next = &b.Next
	}
	return json.Marshal(written)
}

// add counts what became of some runs.
func (b *Bulk) add(changed []store.ChangedRun) {
	b.Seen += len(changed)
	counters := map[store.ChangeResult]*int{store.RunChanged: &b.Changed, store.CancelRequested: &b.CancelRequested, store.RunUnchanged: &b.Unchanged, store.RunNotFound: &b.NotFound, store.RunConflict: &b.Conflict, store.RunLocked: &b.Locked}
	for _, c := range changed {
		*counters[c.Result]++
	}
}
