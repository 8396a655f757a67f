package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// QueueList lists queues, by name.
type QueueList struct {
	Queues []QueueView `json:"queues"`
	Next   *string     `json:"next"` // the After of the next part; nil: this was the last one
}

// QueueView is a queue, with all jobs on it together.
type QueueView struct {
	store.QueueInfo

	Pending   store.Count `json:"pending"`
	OldestDue *time.Time  `json:"oldest_due"` // of the pending run that is due first; nil: none is pending
	Running   store.Count `json:"running"`
	Work
}

// QueueState says whether a queue is paused.
type QueueState struct {
	Name   string `json:"name"`
	Paused bool   `json:"paused"`
}

// CappedQueue says how many runs of a queue may execute concurrently.
type CappedQueue struct {
	Name          string `json:"name"`
	MaxConcurrent *int   `json:"max_concurrent"` // nil: any number
}

// Queues lists the known queues: those on which a run was ever enqueued, and
// those that were paused or capped.
func (o *Operator) Queues(ctx context.Context, part Part) (QueueList, error) {
	list := QueueList{Queues: []QueueView{}}
	queues, err := o.store.Queues(ctx)
	if err != nil {
		return list, err
	}
	queues, next, err := cut(queues, part, func(q *store.QueueInfo) place { return place{name: q.Name} })
	if err != nil {
		return list, err
	}
	f, err := o.fleet(ctx)
	if err != nil {
		return list, err
	}
	at := make(map[string]int, len(queues))
	for i, queue := range queues {
		at[queue.Name] = i
		list.Queues = append(list.Queues, QueueView{QueueInfo: queue, Pending: store.Count{AtLeast: f.survey.Partial},
			Running: store.Count{AtLeast: f.survey.Partial}, Work: f.onQueue(queue.Name)})
	}
	for i := range f.survey.Lanes {
		lane := &f.survey.Lanes[i]
		if n, listed := at[lane.Queue]; listed {
			list.Queues[n].add(lane)
		}
	}
	list.Next = next
	return list, nil
}

// add counts what waits and runs on one of the queue's lanes.
func (q *QueueView) add(lane *store.LaneInfo) {
	q.Pending, q.Running = q.Pending.Plus(lane.Pending), q.Running.Plus(lane.Running)
	if lane.OldestDue != nil && (q.OldestDue == nil || lane.OldestDue.Before(*q.OldestDue)) {
		q.OldestDue = lane.OldestDue
	}
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

// CapQueue bounds how many runs of a queue execute concurrently, over all workers and
// jobs: from now on no run of it starts while so many execute that started under the cap.
// What is pending already is under it, too. Runs that execute continue; those that started
// before the queue was capped are not counted. The cap is the limit store.QueueCap. A
// queue that is not known is refused with ErrNotFound, as in PauseQueue.
func (a *Actor) CapQueue(ctx context.Context, name string, most int) (CappedQueue, error) {
	if err := a.checkKnown(ctx, name); err != nil {
		return CappedQueue{}, err
	}
	return a.CapUnusedQueue(ctx, name, most)
}

// CapUnusedQueue is CapQueue for a queue that need not be known yet.
func (a *Actor) CapUnusedQueue(ctx context.Context, name string, most int) (CappedQueue, error) {
	defer a.hub.touch("queues")
	_, err := a.SetLimit(ctx, store.Limit{Name: store.QueueCap(name), Kind: store.LimitSemaphore, Max: most})
	return CappedQueue{name, &most}, err
}

// UncapQueue lifts the cap of a queue: any number of its runs execute. One that has none
// stays as it is.
func (a *Actor) UncapQueue(ctx context.Context, name string) (CappedQueue, error) {
	capped := CappedQueue{Name: name}
	if err := a.checkKnown(ctx, name); err != nil {
		return capped, err
	}
	defer a.hub.touch("queues")
	_, err := a.ChangeLimit(ctx, store.QueueCap(name), store.DeleteLimit)
	if errors.Is(err, store.ErrConflict) { // runs wait for it, or have its places
		_, err = a.ChangeLimit(ctx, store.QueueCap(name), store.DisableLimit)
	}
	if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return capped, err
}

// setKnown changes a queue unless it is not known.
func (a *Actor) setKnown(ctx context.Context, name string, action store.QueueAction) (QueueState, error) {
	state := QueueState{Name: name, Paused: action == store.PauseQueue}
	if err := store.CheckQueueChange(name, action, a.by); err != nil {
		return state, err
	}
	if err := a.checkKnown(ctx, name); err != nil {
		return state, err
	}
	return state, a.setQueue(ctx, name, action)
}

// checkKnown refuses a queue that is not known.
func (a *Actor) checkKnown(ctx context.Context, name string) error {
	known, err := a.knownQueues(ctx)
	if err == nil && !slices.Contains(known, name) {
		err = fmt.Errorf("queue %q: no run was ever enqueued on it and it is not paused: %w", name, store.ErrNotFound)
	}
	return err
}

func (a *Actor) setQueue(ctx context.Context, name string, action store.QueueAction) error {
	defer a.hub.touch("queues")
	if err := a.store.SetQueue(ctx, name, action, a.by); err != nil {
		return err
	}
	a.note(kindQueue, name, string(action), "", 0)
	return nil
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
