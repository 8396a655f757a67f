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

// PauseQueue stops claims from a queue (see store.Controls). Runs that are
// executing continue. The pause of a queue that is not known, because no run was
// ever enqueued on it and no declared job has it, is refused with ErrNotFound:
// otherwise a mistyped name would look like success while work continues.
func (a *Actor) PauseQueue(ctx context.Context, name string) (QueueState, error) {
	return a.setKnown(ctx, name, store.PauseQueue)
}

// PauseUnusedQueue is PauseQueue for a queue that need not be known yet.
func (a *Actor) PauseUnusedQueue(ctx context.Context, name string) (QueueState, error) {
	return QueueState{name, true}, a.setQueue(ctx, name, store.PauseQueue)
}

// ResumeQueue lets runs of a queue be claimed again. The resume of a queue that
// is not known is refused with ErrNotFound, as in PauseQueue.
func (a *Actor) ResumeQueue(ctx context.Context, name string) (QueueState, error) {
	return a.setKnown(ctx, name, store.ResumeQueue)
}

// setKnown changes a queue unless it is not known.
func (a *Actor) setKnown(ctx context.Context, name string, action store.QueueAction) (QueueState, error) {
	state := QueueState{Name: name, Paused: action == store.PauseQueue}
	if err := store.CheckQueueChange(name, action, a.by); err != nil {
		return state, err
	}
	known, err := a.knownQueues(ctx)
	if err != nil {
		return state, err
	}
	if !slices.Contains(known, name) {
		return state, fmt.Errorf("queue %q: no run was ever enqueued on it and it is not paused: %w", name, store.ErrNotFound)
	}
	return state, a.setQueue(ctx, name, action)
}

func (a *Actor) setQueue(ctx context.Context, name string, action store.QueueAction) error {
	defer a.hub.touch("queues")
	return a.store.SetQueue(ctx, name, action, a.by)
}

// knownQueues names the queues that have had runs, or were paused, and those of
// declared jobs.
func (a *Actor) knownQueues(ctx context.Context) (names []string, err error) {
	queues, err := a.store.Queues(ctx)
	if err != nil {
		return nil, err
	}
	jobs, err := a.store.Jobs(ctx)
	for _, queue := range queues {
		names = append(names, queue.Name)
	}
	for _, job := range slices.Concat(jobs, a.config.Jobs) {
		names = append(names, job.Queue)
	}
	return names, err
}
