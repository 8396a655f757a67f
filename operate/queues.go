package operate

import (
	"context"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/store"
)

// QueueList lists all queues, by name.
type QueueList struct {
	Queues []store.QueueInfo `json:"queues"`
	Next   *string           `json:"next"` // always nil: the list is complete
}

// QueueState says whether a queue is paused.
type QueueState struct {
	Name   string `json:"name"`
	Paused bool   `json:"paused"`
}

// Queues lists the known queues: those on which a run was ever enqueued, and
// those that were paused.
func (o *Operator) Queues(ctx context.Context) (QueueList, error) {
	queues, err := o.store.Queues(ctx)
	return QueueList{Queues: whole(queues)}, err
}

// PauseQueue stops claims from a queue, which need not have been used yet (see
// store.Controls). Runs that are executing continue.
func (a *Actor) PauseQueue(ctx context.Context, name string) (QueueState, error) {
	return QueueState{name, true}, a.store.SetQueue(ctx, name, store.PauseQueue, a.by)
}

// ResumeQueue lets runs of a queue be claimed again. The resume of a queue that
// is not known is refused with ErrNotFound: otherwise a mistyped name would look
// like success while the queue that was meant stays paused.
func (a *Actor) ResumeQueue(ctx context.Context, name string) (QueueState, error) {
	state := QueueState{Name: name}
	if err := store.CheckQueueChange(name, store.ResumeQueue, a.by); err != nil {
		return state, err
	}
	queues, err := a.store.Queues(ctx)
	if err != nil {
		return state, err
	}
	if !slices.ContainsFunc(queues, func(q store.QueueInfo) bool { return q.Name == name }) {
		return state, fmt.Errorf("queue %q: no run was ever enqueued on it and it is not paused: %w", name, store.ErrNotFound)
	}
	return state, a.store.SetQueue(ctx, name, store.ResumeQueue, a.by)
}
