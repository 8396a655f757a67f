package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// The bounds of bulk changes that continue in the background.
const (
	maxBulks  = 4   // that are under way
	keptBulks = 100 // of which the end is remembered
)

// BulkOrder is a change to all runs that match a filter, or to all members of a batch.
type BulkOrder struct {
	Action store.RunAction `json:"action"`
	// Batch is the batch whose members are changed; nil: none. Of the Filter only States
	// counts then, and Before as the member after which it begins.
	Batch  *store.BatchID `json:"batch"`
	Filter store.Filter   `json:"-"`
	Reason string         `json:"reason"`
}

// BulkState says how far a bulk change is.
type BulkState string

// The states of bulk changes. More may come.
const (
	BulkExecuting BulkState = "executing"
	BulkDone      BulkState = "done"
	BulkStopped   BulkState = "stopped" // by an operator, or because its process ended
	BulkFailed    BulkState = "failed"
)

// BulkStatus is a bulk change that continues in the background.
type BulkStatus struct {
	N int64 `json:"n"` // its number in this process

	BulkOrder

	State     BulkState  `json:"state"`
	By        string     `json:"by"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Progress  Bulk       `json:"progress"` // its Next continues it
	Error     *string    `json:"error"`    // of one that failed
}

// bulks are the bulk changes of one Operator.
type bulks struct {
	mu     sync.Mutex
	last   int64
	all    []*bulk // oldest first
	closed bool
	under  sync.WaitGroup
}

type bulk struct {
	status BulkStatus
	stop   context.CancelFunc
}

// StartBulk begins a change to all runs that match, and returns while it continues, as
// ChangeAll does it. It concerns the runs created before now,
// unless the filter says until when. Four may be under way in this process; another is
// refused with ErrBusy. It ends with this process: its Progress says where to continue.
func (a *Actor) StartBulk(order BulkOrder) (BulkStatus, error) {
	now := a.config.Now()
	if order.Filter.Until.IsZero() && order.Batch == nil {
		order.Filter.Until = now
	}
	command := store.RunCommand{Action: order.Action, Reason: order.Reason, By: a.by}
	if err := errors.Join(command.Check(), rangeFault(order.Filter), a.MayFind(order.Filter)); err != nil {
		return BulkStatus{}, err
	}
	b := &a.bulks
	b.mu.Lock()
	defer b.mu.Unlock()
	under := 0
	for _, one := range b.all {
		if one.status.State == BulkExecuting {
			under++
		}
	}
	if under >= maxBulks || b.closed {
		return BulkStatus{}, fmt.Errorf("%w: %d bulk changes are under way", ErrBusy, under)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.last++
	made := &bulk{stop: stop, status: BulkStatus{N: b.last, BulkOrder: order, State: BulkExecuting, By: a.by, StartedAt: now.UTC(),
		Progress: Bulk{Next: order.Filter.Before}}}
	b.all = append(b.all, made)
	if len(b.all) > keptBulks {
		b.forget()
	}
	b.under.Go(func() { a.execute(ctx, made) })
	return made.status, nil
}

// rangeFault is what is wrong with a filter.
func rangeFault(filter store.Filter) error {
	_, _, _, err := filter.Range()
	return err
}

// forget forgets the oldest bulk change that has ended.
func (b *bulks) forget() {
	if i := slices.IndexFunc(b.all, func(one *bulk) bool { return one.status.State != BulkExecuting }); i >= 0 {
		b.all = slices.Delete(b.all, i, i+1)
	}
}

// execute does a bulk change.
func (a *Actor) execute(ctx context.Context, made *bulk) {
	defer made.stop()
	b := &a.bulks
	change := func(status func(*BulkStatus)) {
		b.mu.Lock()
		defer b.mu.Unlock()
		status(&made.status)
		a.hub.touch("bulk")
	}
	done, err := a.ChangeAll(ctx, made.status.BulkOrder, func(progress Bulk) {
		change(func(s *BulkStatus) { s.Progress = progress })
	})
	change(func(s *BulkStatus) {
		ended := a.config.Now().UTC()
		s.Progress, s.EndedAt, s.State = done, &ended, BulkDone
		switch {
		case err != nil && ctx.Err() != nil:
			s.State = BulkStopped
		case err != nil:
			text := "the store has refused it, or does not answer"
			if code := a.CodeOf(err); code == Invalid || code == Conflict {
				text = err.Error()
			}
			s.State, s.Error = BulkFailed, &text
		}
	})
}

// Bulk returns a bulk change of this process, or ErrNotFound.
func (o *Operator) Bulk(n int64) (BulkStatus, error) {
	o.bulks.mu.Lock()
	defer o.bulks.mu.Unlock()
	one, err := o.bulks.find(n)
	if err != nil {
		return BulkStatus{}, err
	}
	status := one.status
	o.showFilter(&status.Filter)
	return status, nil
}

func (b *bulks) find(n int64) (*bulk, error) {
	for _, one := range b.all {
		if one.status.N == n {
			return one, nil
		}
	}
	return nil, fmt.Errorf("bulk change %d: this process does not know it: %w", n, store.ErrNotFound)
}

// BulkList lists the bulk changes of this process, newest first.
func (o *Operator) BulkList() []BulkStatus {
	o.bulks.mu.Lock()
	defer o.bulks.mu.Unlock()
	list := make([]BulkStatus, 0, len(o.bulks.all))
	for _, one := range slices.Backward(o.bulks.all) {
		status := one.status
		o.showFilter(&status.Filter)
		list = append(list, status)
	}
	return list
}

// StopBulk stops a bulk change of this process after the page that it is at. What it
// has changed stays changed.
func (a *Actor) StopBulk(n int64) (BulkStatus, error) {
	a.bulks.mu.Lock()
	defer a.bulks.mu.Unlock()
	one, err := a.bulks.find(n)
	if err != nil {
		return BulkStatus{}, err
	}
	one.stop()
	return one.status, nil
}

// Close stops the bulk changes of this process, and waits for them and for LastCounts.
func (o *Operator) Close() {
	b := &o.bulks
	b.mu.Lock()
	b.closed = true
	for _, one := range b.all {
		one.stop()
	}
	b.mu.Unlock()
	b.under.Wait()
	o.counting.under.Wait()
}
