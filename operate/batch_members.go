package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
)

// Member is a run of a batch, with how it has ended.
type Member struct {
	ID    store.RunID `json:"id"`
	Job   string      `json:"job"`
	State store.State `json:"state"`
	// Result is what a member that has succeeded returned; nil: there is none, or it is hidden.
	Result json.RawMessage `json:"result"`
	Size   int             `json:"size"`   // of the result in bytes, also if it is hidden
	Reason *string         `json:"reason"` // why it is dead or cancelled
}

// MemberList is a page of the members of a batch, in the order of their ids.
type MemberList struct {
	Members []Member     `json:"members"`
	Next    *store.RunID `json:"next"` // the After of the next page; nil: this was the last one
}

// MemberFilter chooses members of a batch.
type MemberFilter struct {
	Batch  store.BatchID
	States []store.State // none: all
	After  store.RunID   // cursor: only members after this one; the zero ID is none
	Limit  int           // 1 to store.LargestPage; zero means 50
}

const (
	// BatchFailures is how many failed members a BatchDetail has.
	BatchFailures = 20
	// failuresMost and failuresFor are when the search for them ends.
	failuresMost, failuresFor = 5_000, 50 * time.Millisecond
)

// Members lists members of a batch, or returns ErrNotFound. Where few of them are in the wanted
// states, a page may be short, or empty, and have a Next.
func (o *Operator) Members(ctx context.Context, filter MemberFilter) (MemberList, error) {
	list := MemberList{Members: []Member{}}
	if filter.Limit == 0 {
		filter.Limit = defaultPage
	}
	if filter.Limit < 1 || filter.Limit > store.LargestPage {
		return list, fmt.Errorf("%w: limit %d: want 1 to %d", store.ErrInvalid, filter.Limit, store.LargestPage)
	}
	rules, err := o.redactions(ctx)
	if err != nil {
		return list, err
	}
	err = o.eachMembers(ctx, filter, func(page *store.MemberPage) (more bool, err error) {
		list.Next = nextOf(page.Next)
		for i := range page.Members {
			if !filter.wants(page.Members[i].State) {
				continue
			}
			list.Members = append(list.Members, o.shownMember(rules, &page.Members[i]))
			if len(list.Members) < filter.Limit {
				continue
			}
			if i+1 < len(page.Members) {
				list.Next = &page.Members[i].ID
			}
			return false, nil
		}
		return true, nil
	})
	return list, err
}

func (f *MemberFilter) wants(state store.State) bool {
	return len(f.States) == 0 || slices.Contains(f.States, state)
}

func nextOf(id store.RunID) *store.RunID {
	if id == (store.RunID{}) {
		return nil
	}
	return &id
}

// eachMembers goes through members of a batch, a page at a time, while do wants more, and for as
// long as a search may take.
func (o *Operator) eachMembers(ctx context.Context, filter MemberFilter, do func(*store.MemberPage) (more bool, err error)) error {
	limit := store.MaxSources
	if len(filter.States) == 0 {
		limit = filter.Limit
	}
	began, examined := o.config.Now(), 0
	for {
		page, err := o.store.Members(ctx, filter.Batch, filter.After, limit)
		if err != nil {
			return err
		}
		more, err := do(&page)
		examined += len(page.Members)
		if err != nil || !more || page.Next == (store.RunID{}) || examined >= searchMost || o.config.Now().Sub(began) > searchFor {
			return err
		}
		filter.After = page.Next
	}
}

func (o *Operator) shownMember(rules *redactions, outcome *store.RunOutcome) Member {
	member := Member{ID: outcome.ID, Job: outcome.Job, State: outcome.State, Reason: someText(outcome.Reason)}
	member.Result, member.Size = o.shownValue(rules.of(outcome.Job), outcome.Result)
	if mask := Mask; member.Reason != nil && o.hides&HideTexts != 0 {
		member.Reason = &mask
	}
	return member
}

// failures are the first failed members of a batch, dead ones first.
func (o *Operator) failures(ctx context.Context, batch *BatchView) ([]Member, error) {
	if batch.Counts.Failed() == 0 {
		return []Member{}, nil
	}
	rules, err := o.redactions(ctx)
	if err != nil {
		return nil, err
	}
	dead, cancelled := []Member{}, []Member{}
	deadMost := int(min(batch.Counts.Dead, BatchFailures))
	cancelledMost := int(min(batch.Counts.Cancelled, int64(BatchFailures-deadMost)))
	began, examined := o.config.Now(), 0
	err = o.eachMembers(ctx, MemberFilter{Batch: batch.ID, States: []store.State{store.Dead, store.Cancelled}}, func(page *store.MemberPage) (bool, error) {
		for i := range page.Members {
			switch member := &page.Members[i]; {
			case member.State == store.Dead && len(dead) < deadMost:
				dead = append(dead, o.shownMember(rules, member))
			case member.State == store.Cancelled && len(cancelled) < cancelledMost:
				cancelled = append(cancelled, o.shownMember(rules, member))
			}
		}
		examined += len(page.Members)
		whole := len(dead) == deadMost && len(cancelled) == cancelledMost
		return !whole && examined < failuresMost && o.config.Now().Sub(began) < failuresFor, nil
	})
	return slices.Concat(dead, cancelled), err
}

// RetryBatch retries the dead members of a batch, 1,000 at a time, and calls progress, which may be
// nil, after each step. The audit log has one row for all of it, of the kind bulk. After an error
// the changes made until then stay, and RetryBatch may be called again: it retries those that are
// dead then.
func (a *Actor) RetryBatch(ctx context.Context, id store.BatchID, reason string, progress func(Bulk)) (Bulk, error) {
	if _, err := a.store.Batch(ctx, id); err != nil {
		return Bulk{}, err
	}
	return a.ChangeAll(ctx, retryOf(id, reason), progress)
}

// StartRetryBatch begins what RetryBatch does, and returns while it continues, as StartBulk does.
func (a *Actor) StartRetryBatch(ctx context.Context, id store.BatchID, reason string) (BulkStatus, error) {
	if _, err := a.store.Batch(ctx, id); err != nil {
		return BulkStatus{}, err
	}
	return a.StartBulk(retryOf(id, reason))
}

func retryOf(id store.BatchID, reason string) BulkOrder {
	return BulkOrder{Action: store.RetryRuns, Batch: &id, Filter: store.Filter{States: []store.State{store.Dead}}, Reason: reason}
}

// changeMembers changes all members of a batch that are in the states of an order.
func (a *Actor) changeMembers(ctx context.Context, order BulkOrder, progress func(Bulk)) (Bulk, error) {
	bulk := &store.BulkChange{ID: uuid.New(), Batch: order.Batch, Filter: store.Filter{States: statesOf(order.Action, order.Filter)}}
	done, err := a.eachChanged(ctx, order, bulk, progress)
	a.noteBulk(bulk, order.Action, order.Reason, done)
	return done, err
}

func (a *Actor) eachChanged(ctx context.Context, order BulkOrder, bulk *store.BulkChange, progress func(Bulk)) (Bulk, error) {
	done := Bulk{Next: order.Filter.Before}
	for {
		page, err := a.store.Members(ctx, *order.Batch, done.Next, store.MaxCommandRuns)
		if err != nil {
			return done, fmt.Errorf("%s members of batch %s: %w", order.Action, order.Batch, err)
		}
		var ids []store.RunID
		for i := range page.Members {
			if slices.Contains(bulk.Filter.States, page.Members[i].State) {
				ids = append(ids, page.Members[i].ID)
			}
		}
		changed, err := a.Change(ctx, store.RunCommand{Action: order.Action, Reason: order.Reason, Bulk: bulk, Runs: ids})
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
