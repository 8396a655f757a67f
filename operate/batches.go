package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// BatchView is a batch as it is shown.
type BatchView struct {
	ID         store.BatchID     `json:"id"`
	Name       string            `json:"name"`
	State      store.BatchState  `json:"state"`
	Counts     store.BatchCounts `json:"counts"`
	Unfinished int64             `json:"unfinished"` // members that have not ended
	Closed     bool              `json:"closed"`
	FailFast   bool              `json:"fail_fast"`
	Cancelled  bool              `json:"cancelled"` // its unfinished members are cancelled
	Owner      *store.RunID      `json:"owner"`     // the run whose handler has made it; nil: none has
	CreatedAt  time.Time         `json:"created_at"`
	OpenUntil  *time.Time        `json:"open_until"` // then it has failed, unless it was closed before
	EndsBy     *time.Time        `json:"ends_by"`    // then it is cancelled
	FailedAt   *time.Time        `json:"failed_at"`
	EndedAt    *time.Time        `json:"ended_at"` // the first time
	Reason     *string           `json:"reason"`   // why it was cancelled, or that it was never closed
	At         time.Time         `json:"at"`       // when this was read
	// Rate is how many members have ended in a second, on average since the batch was made;
	// nil: none has ended.
	Rate *float64 `json:"rate"`
	// TimeLeft is how long the unfinished members take at this rate; nil: it is not known, or
	// there are none.
	TimeLeft *store.Duration `json:"time_left"`
}

// BatchList is a page of batches, newest first.
type BatchList struct {
	Batches []BatchView    `json:"batches"`
	Next    *store.BatchID `json:"next"` // the Before of the next page; nil: this was the last one
}

// BatchDetail is one batch with its failed members and what waits for it.
type BatchDetail struct {
	BatchView

	// Failed are dead members, and cancelled ones below them, at most BatchFailures. They are
	// searched for among the first members only: the counts say how many there are.
	Failed []Member `json:"failed"`
	// Waiters are the runs that wait for the batch, unmet conditions first, at most
	// store.MaxLinks.
	Waiters []BatchWaiter `json:"waiters"`
}

// BatchWaiter is a run that waits for a batch.
type BatchWaiter struct {
	Run   store.RunID `json:"run"`
	Job   string      `json:"job"`
	State store.State `json:"state"`
	Want  store.Want  `json:"want"`
	Met   bool        `json:"met"`
	Step  *string     `json:"step"` // of the handler that waits for it; nil: it is a dependent
}

// EndedMembers is how many members have ended.
func (b *BatchView) EndedMembers() int64 { return b.Counts.Members - b.Unfinished }

// Percent is how many of a hundred members have ended, rounded down: at 100 all have. An empty batch
// is at 100 when it has ended.
func (b *BatchView) Percent() int {
	switch {
	case b.Counts.Members > 0:
		return int(100 * b.EndedMembers() / b.Counts.Members)
	case b.State == store.BatchRunning:
		return 0
	default:
		return 100
	}
}

// Ended returns a *BatchEndedError when the batch has failed or was cancelled.
func (b *BatchView) Ended() error {
	if b.State != store.BatchFailed && b.State != store.BatchCancelled {
		return nil
	}
	return &BatchEndedError{*b}
}

// BatchEndedError says that a batch has ended without success.
type BatchEndedError struct{ Batch BatchView }

// Error names the batch, its state, and how many of its members have failed.
func (e *BatchEndedError) Error() string {
	text := fmt.Sprintf("batch %s is %s: of %d members %d are dead and %d cancelled", e.Batch.ID, e.Batch.State,
		e.Batch.Counts.Members, e.Batch.Counts.Dead, e.Batch.Counts.Cancelled)
	if e.Batch.Reason != nil {
		text += ": " + *e.Batch.Reason
	}
	return text
}

// viewOf is a batch as it is shown at an instant.
func viewOf(b *store.Batch, now time.Time) BatchView {
	view := BatchView{ID: b.ID, Name: b.Name, State: b.State, Counts: b.Counts, Unfinished: b.Counts.Unfinished(), Closed: b.Closed, FailFast: b.FailFast,
		Cancelled: b.Cancelled, Owner: b.Owner, CreatedAt: b.CreatedAt, OpenUntil: b.OpenUntil, EndsBy: b.EndsBy, FailedAt: b.FailedAt, EndedAt: b.EndedAt,
		Reason: someText(b.Reason), At: now.UTC()}
	until := now
	if view.Unfinished == 0 && b.EndedAt != nil {
		until = *b.EndedAt
	}
	took := until.Sub(b.CreatedAt)
	if took <= 0 || view.EndedMembers() == 0 {
		return view
	}
	rate := float64(view.EndedMembers()) / took.Seconds()
	view.Rate = &rate
	if left := float64(view.Unfinished) / rate; left > 0 && left < leftMost.Seconds() {
		takes := store.Duration(time.Duration(left * float64(time.Second)).Round(time.Millisecond))
		view.TimeLeft = &takes
	}
	return view
}

// leftMost is the longest time left that is shown. A longer one is no more than a guess.
const leftMost = 10 * 365 * 24 * time.Hour

// Batches lists batches, newest first.
func (o *Operator) Batches(ctx context.Context, filter store.BatchFilter) (BatchList, error) {
	list := BatchList{Batches: []BatchView{}}
	most, err := filter.Most()
	if err != nil {
		return list, err
	}
	found, err := o.store.Batches(ctx, filter)
	if err != nil {
		return list, err
	}
	now := o.config.Now()
	for i := range found {
		list.Batches = append(list.Batches, viewOf(&found[i], now))
	}
	if len(found) == most {
		list.Next = &found[most-1].ID
	}
	return list, nil
}

// BatchSummary returns one batch, or ErrNotFound.
func (o *Operator) BatchSummary(ctx context.Context, id store.BatchID) (BatchView, error) {
	b, err := o.store.Batch(ctx, id)
	if err != nil {
		return BatchView{}, err
	}
	return viewOf(&b, o.config.Now()), nil
}

// Batch returns one batch with its failed members and what waits for it, or ErrNotFound.
func (o *Operator) Batch(ctx context.Context, id store.BatchID) (BatchDetail, error) {
	view, err := o.BatchSummary(ctx, id)
	if err != nil {
		return BatchDetail{}, err
	}
	detail := BatchDetail{BatchView: view, Waiters: []BatchWaiter{}}
	if detail.Failed, err = o.failures(ctx, &view); err != nil {
		return BatchDetail{}, err
	}
	links, err := o.store.Links(ctx, id)
	if err != nil {
		return BatchDetail{}, err
	}
	for i := range links.WaitedFor {
		link := &links.WaitedFor[i]
		detail.Waiters = append(detail.Waiters, BatchWaiter{Run: link.Run, Job: link.Job, State: link.State, Want: link.Want, Met: link.Met, Step: someText(link.Name)})
	}
	return detail, nil
}

// How often WaitForBatch asks: at first, and at most.
const firstBatchLook, lastBatchLook = 50 * time.Millisecond, time.Second

// WaitForBatch waits until a batch has ended, or until ctx ends, and returns the batch. One that
// has ended before and of which members were retried has ended when they have.
func (o *Operator) WaitForBatch(ctx context.Context, id store.BatchID) (BatchView, error) {
	for pause := firstBatchLook; ; pause = min(2*pause, lastBatchLook) {
		view, err := o.BatchSummary(ctx, id)
		switch {
		case ctx.Err() != nil:
			return view, context.Cause(ctx)
		case err != nil || view.State != store.BatchRunning:
			return view, err
		}
		select {
		case <-ctx.Done():
			return view, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// CloseBatch says that no run is added to a batch from outside any more, and returns the batch. A
// repeat does nothing.
func (a *Actor) CloseBatch(ctx context.Context, id store.BatchID) (BatchView, error) {
	return a.changeBatch(ctx, id, rules.BatchCloses, "", func(b *BatchView) (bool, error) {
		if b.Closed {
			return false, nil
		}
		return true, a.store.CloseBatch(ctx, store.BatchClose{ID: id, By: a.by})
	})
}

// CancelBatch cancels a batch: it takes no more runs, and its unfinished members are cancelled. One
// that has ended is ErrConflict.
func (a *Actor) CancelBatch(ctx context.Context, id store.BatchID, reason string) (BatchView, error) {
	cancel := store.BatchCancel{ID: id, Reason: reason, By: a.by}
	if err := cancel.Check(); err != nil {
		return BatchView{}, err
	}
	return a.changeBatch(ctx, id, string(store.CancelRuns), reason, func(b *BatchView) (bool, error) {
		if b.EndedAt != nil {
			return false, fmt.Errorf("cancel batch %s: it is %s: %w", id, b.State, store.ErrConflict)
		}
		return !b.Cancelled, a.store.CancelBatch(ctx, cancel)
	})
}

// changeBatch changes a batch, and returns it as it is then.
func (a *Actor) changeBatch(ctx context.Context, id store.BatchID, action, reason string, change func(*BatchView) (changes bool, err error)) (BatchView, error) {
	if err := store.CheckActor(a.by); err != nil {
		return BatchView{}, fmt.Errorf("%s batch: %w", action, err)
	}
	view, err := a.BatchSummary(ctx, id)
	if err != nil {
		return view, err
	}
	changes, err := change(&view)
	if err != nil {
		return view, err
	}
	if changes {
		a.note(kindBatch, id.String(), action, reason, 0)
		a.hub.touch("runs")
	}
	return a.BatchSummary(ctx, id)
}
