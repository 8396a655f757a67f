package operate

import (
	"context"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/store"
)

// QueueList lists all queues, by name.
type QueueList struct {
	Queues []QueueView `json:"queues"`
	Next   *string     `json:"next"` // always nil: the list is complete
}

// QueueView is a queue, with all jobs on it together.
type QueueView struct {
	store.QueueInfo

	Running store.Count `json:"running"`
	Work
}

// QueueState says whether a queue is paused.
type QueueState struct {
	Name   string `json:"name"`
	Paused bool   `json:"paused"`
}

// Queues lists the known queues: those on which a run was ever enqueued, and
// those that were paused.
func (o *Operator) Queues(ctx context.Context) (QueueList, error) {
	list := QueueList{Queues: []QueueView{}}
	queues, err := o.store.Queues(ctx)
	if err != nil {
		return list, err
	}
	f, err := o.fleet(ctx)
	if err != nil {
		return list, err
	}
	for _, queue := range queues {
		view := QueueView{QueueInfo: queue, Work: f.work(
			func(w *store.WorkerInfo) bool {
				return w.State == store.Working && (w.More || slices.Contains(w.Queues, queue.Name))
			},
			func(key laneKey) bool { return key.queue == queue.Name })}
		for _, lane := range f.survey.Lanes {
			if lane.Queue == queue.Name {
				view.Running.N += lane.Running.N
				view.Running.Estimated = view.Running.Estimated || lane.Running.Estimated
			}
		}
		list.Queues = append(list.Queues, view)
	}
	return list, nil
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
