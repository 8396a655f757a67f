package operate

import (
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// The reasons why no worker serves a run, as the detail of BlockerNoWorker says them.
const (
	neverDeclared = "never_declared" // no worker has ever had the job
	otherQueues   = "other_queues"   // workers have the job, and serve other queues
	withoutJob    = "without_job"    // workers serve the queue, and do not have the job
	noneLeft      = "none_left"      // workers had the job, and are not there any more
)

// serving are the workers in a state that have the job of the run and serve its queue.
func (e *explaining) serving(state store.WorkerState) (found []*store.WorkerInfo) {
	run := e.Facts.Run
	for i := range e.Workers {
		w := &e.Workers[i]
		if w.State == state && (w.More || serves(w, run.Job, run.Queue)) {
			found = append(found, w)
		}
	}
	return found
}

// workers says what of the workers keeps a run from starting.
func (e *explaining) workers() {
	working := e.serving(store.Working)
	if len(working) > 0 {
		e.full(working)
		return
	}
	if draining := e.serving(store.Draining); len(draining) > 0 {
		e.block(Blocker{Kind: BlockerWorkersDraining, Text: "the workers that serve it are draining: " + namesOf(draining)}, nil,
			e.startWorker(""))
		return
	}
	if silent := e.serving(store.Silent); len(silent) > 0 {
		last := slices.MaxFunc(silent, func(a, b *store.WorkerInfo) int { return a.SeenAt.Compare(b.SeenAt) })
		e.block(Blocker{Kind: BlockerWorkersSilent, Since: &last.SeenAt, Text: fmt.Sprintf("no living worker serves job %s on queue %s; last %s, %s ago",
			e.Facts.Run.Job, e.Facts.Run.Queue, described(last), span(time.Duration(last.SeenAgo)))}, nil, e.startWorker(""))
		return
	}
	e.noWorker()
}

// noWorker says why no worker serves a run, not even a silent one.
func (e *explaining) noWorker() {
	run := e.Facts.Run
	queues, others := nearlyServing(e.Workers, run.Job, run.Queue)
	text, variant := fmt.Sprintf("no worker serves job %s on queue %s", run.Job, run.Queue), noneLeft
	var advice string
	switch {
	case len(queues) > 0:
		variant = otherQueues
		advice = "the workers that have the job serve the queues " + some(queues)
	case e.Declared == nil:
		variant = neverDeclared
		advice = "no worker has ever declared the job"
	case len(others) > 0:
		variant = withoutJob
		advice = "the workers that serve the queue do not have the job (a renamed job needs durable.Alias): " + some(others)
	default:
		advice = "the workers that had the job were stopped, or are silent for more than a day"
	}
	if e.Declared != nil && run.Worker != nil {
		advice += "; it was last executed by " + *run.Worker
	}
	hint := ""
	if len(queues) > 0 {
		hint = ", or let one of those that have the job serve the queue"
	}
	e.block(Blocker{Kind: BlockerNoWorker, Text: text + ": " + advice}, map[string]any{"variant": variant, "queues": whole(queues), "workers": whole(others)},
		e.startWorker(hint))
}

// full says that the workers that serve a run have no place for it.
func (e *explaining) full(working []*store.WorkerInfo) {
	var executing, capacity int
	oldest := time.Duration(0)
	for _, w := range working {
		if w.Executing < w.Capacity || w.Capacity == 0 {
			return
		}
		executing, capacity, oldest = executing+w.Executing, capacity+w.Capacity, max(oldest, time.Duration(w.SeenAgo))
	}
	e.block(Blocker{Kind: BlockerWorkersFull, Text: fmt.Sprintf("%s it, and all are full: %d of %d handlers execute, as reported at most %s ago",
		counted(store.Count{N: int64(len(working))}, "worker serves", "workers serve"), executing, capacity, span(oldest))}, map[string]any{"executing": executing, "capacity": capacity, "workers": len(working)},
		Remedy{"start_worker", RoleDeployer, "start more workers, or give them more capacity", ""})
}

func (e *explaining) startWorker(hint string) Remedy {
	return Remedy{"start_worker", RoleDeployer, "start a worker that has job " + e.Facts.Run.Job + " and serves queue " + e.Facts.Run.Queue + hint, ""}
}

func namesOf(workers []*store.WorkerInfo) string {
	names := make([]string, len(workers))
	for i, w := range workers {
		names[i] = described(w)
	}
	return some(names)
}
