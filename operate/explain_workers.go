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
	case len(others) > 0 && e.ServedAs != nil:
		variant = withoutJob
		advice = fmt.Sprintf("the workers that serve the queue do not have job %s with this earlier name: %s", *e.ServedAs, some(others))
	case len(others) > 0:
		variant = withoutJob
		advice = "the workers that serve the queue do not have the job (a renamed job needs durable.Alias): " + some(others)
	default:
		advice = "the workers that had the job were stopped, or are silent for more than a day"
	}
	if e.ServedAs != nil && variant != withoutJob {
		advice += "; it is an earlier name of job " + *e.ServedAs
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
	var f fullness
	for _, w := range working {
		room := w.FullFor(e.Facts.Run.Queue)
		if room == nil && (w.Executing < w.Capacity || w.Capacity == 0) {
			return
		}
		f.add(w, room)
	}
	text := fmt.Sprintf("%s: %s, as reported at most %s ago%s",
		counted(store.Count{N: int64(len(working))}, "worker serves it, and is full", "workers serve it, and all are full"), f.places(e.Facts.Run.Queue), span(f.reported), f.last())
	e.block(Blocker{Kind: BlockerWorkersFull, Text: text}, map[string]any{"executing": f.executing, "capacity": f.capacity, "workers": len(working),
		"capped": f.capped, "longest": f.longest, "longest_on": f.on},
		Remedy{"start_worker", RoleDeployer, "start more workers, or give them more capacity", ""})
}

// fullness is what keeps workers from taking a run.
type fullness struct {
	executing, capacity int
	capped              int           // workers whose own cap of the queue is what is full
	ofCap, cap          int           // of those: places taken, and places
	reported            time.Duration // ago, at most
	longest             *store.LongExecution
	on                  string // the worker that has it
}

func (f *fullness) add(w *store.WorkerInfo, room *store.OwnCap) {
	f.executing, f.capacity, f.reported = f.executing+w.Executing, f.capacity+w.Capacity, max(f.reported, time.Duration(w.SeenAgo))
	if room != nil && w.Executing < w.Capacity {
		f.capped, f.ofCap, f.cap = f.capped+1, f.ofCap+room.Executing, f.cap+room.Max
	}
	if l := w.Longest; l != nil && (f.longest == nil || l.For+w.SeenAgo > f.longest.For) {
		longest := *l
		longest.For += w.SeenAgo
		f.longest, f.on = &longest, w.Name
	}
}

// places says which places are taken.
func (f *fullness) places(queue string) string {
	text := fmt.Sprintf("%d of %d handlers execute", f.executing, f.capacity)
	if f.capped > 0 {
		text += fmt.Sprintf(", and of queue %s %d of the %d that %s", queue, f.ofCap, f.cap,
			counted(store.Count{N: int64(f.capped)}, "worker with a cap of its own allows", "workers with caps of their own allow"))
	}
	return text
}

// last names the execution that has lasted the longest.
func (f *fullness) last() string {
	if f.longest == nil {
		return ""
	}
	return fmt.Sprintf("; the longest is run %s of job %s on %s, for %s", f.longest.Run, f.longest.Job, f.on, span(time.Duration(f.longest.For)))
}

func (e *explaining) startWorker(hint string) Remedy {
	job := e.Facts.Run.Job
	if e.ServedAs != nil {
		job = *e.ServedAs
	}
	return Remedy{"start_worker", RoleDeployer, "start a worker that has job " + job + " and serves queue " + e.Facts.Run.Queue + hint, ""}
}

func namesOf(workers []*store.WorkerInfo) string {
	names := make([]string, len(workers))
	for i, w := range workers {
		names[i] = described(w)
	}
	return some(names)
}
