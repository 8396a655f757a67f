package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// ExamineServing looks for runs that wait for a worker which is not there. Without a
// living worker, runs that are due are a failure; so are due runs of a job on a queue
// that no living worker serves.
func (o *Operator) ExamineServing(ctx context.Context) (f store.Findings) {
	fleet, err := o.fleet(ctx)
	if err != nil {
		f.Fail("workers", err.Error(), "repeat it when the database answers")
		return f
	}
	if fleet.examineWorkers(&f) {
		fleet.examineLanes(&f)
	}
	return f
}

// examineWorkers reports whether there are living workers.
func (f *fleet) examineWorkers(found *store.Findings) bool {
	byState := map[store.WorkerState][]string{}
	for _, w := range f.workers {
		name := w.Name
		if w.State == store.Silent {
			name = fmt.Sprintf("%s (%s ago)", described(&w), time.Duration(w.SeenAgo).Round(time.Second))
		}
		byState[w.State] = append(byState[w.State], name)
	}
	alive, silent := len(byState[store.Working])+len(byState[store.Draining]), byState[store.Silent]
	text := fmt.Sprintf("%d workers alive", alive)
	if n := len(byState[store.Draining]); n > 0 {
		text += fmt.Sprintf(", %d of them draining", n)
	}
	if len(silent) > 0 {
		text += fmt.Sprintf("; silent: %s", some(silent))
	}
	due, oldest := f.due()
	switch {
	case alive == 0 && due > 0:
		found.Fail("workers", fmt.Sprintf("%s; %d runs due, oldest %s", text, due, oldest), "start a worker")
	case alive == 0:
		found.Warn("workers", text, "start one")
	case len(silent) > 0:
		found.Warn("workers", text, "see why it ended: a worker that stops in order is not listed; after a day it is forgotten")
	default:
		found.Fine("workers", text)
	}
	return alive > 0
}

// due counts the runs that wait, paused queues left out, and says how long the first
// one has.
func (f *fleet) due() (due int64, oldest time.Duration) {
	for i := range f.survey.Lanes {
		lane := &f.survey.Lanes[i]
		if due += lane.Due.N; lane.Paused {
			due -= lane.Due.N
		} else if lane.OldestDue != nil {
			oldest = max(oldest, f.survey.At.Sub(*lane.OldestDue))
		}
	}
	return due, oldest.Round(time.Second)
}

// lanesMost bounds the findings about jobs.
const lanesMost = 100

// examineLanes looks for jobs on queues that no living worker serves.
func (f *fleet) examineLanes(found *store.Findings) {
	unserved := 0
	for i := range f.survey.Lanes {
		lane := &f.survey.Lanes[i]
		serves := func(w store.WorkerInfo) bool { return w.Serves(lane.Queue, lane.Job) }
		if lane.Pending.N == 0 || slices.ContainsFunc(f.workers, serves) {
			continue
		}
		if unserved++; unserved > lanesMost {
			break
		}
		text := fmt.Sprintf("no living worker serves job %s on queue %s", lane.Job, lane.Queue)
		hint := "start a worker that has the job and serves the queue" + f.advice(lane)
		if lane.Due.N > 0 && !lane.Paused {
			age := f.survey.At.Sub(*lane.OldestDue).Round(time.Second)
			found.Fail("jobs", fmt.Sprintf("%s: %d runs due, oldest %s%s", text, lane.Due.N, age, f.last(lane)), hint)
		} else {
			found.Warn("jobs", fmt.Sprintf("%s: %d runs wait%s", text, lane.Pending.N, f.last(lane)), hint)
		}
	}
	if unserved == 0 {
		found.Fine("jobs", "living workers serve every job and queue of which runs wait")
	}
}

// advice says what the living workers serve that comes near.
func (f *fleet) advice(lane *store.LaneInfo) string {
	var queues, names []string
	for i := range f.workers {
		w := &f.workers[i]
		switch {
		case w.State != store.Working:
		case slices.Contains(w.Jobs, lane.Job):
			queues = append(queues, w.Queues...)
		case slices.Contains(w.Queues, lane.Queue):
			names = append(names, w.Name)
		}
	}
	slices.Sort(queues)
	queues = slices.Compact(queues)
	switch {
	case len(queues) > 0:
		return "; those that have the job serve the queues " + some(queues)
	case len(names) > 0:
		return "; those that serve the queue do not have the job (a renamed job needs durable.Alias): " + some(names)
	default:
		return ""
	}
}

// last names a silent worker that served a lane.
func (f *fleet) last(lane *store.LaneInfo) string {
	for i := range f.workers {
		w := &f.workers[i]
		if w.State == store.Silent && slices.Contains(w.Queues, lane.Queue) && slices.Contains(w.Jobs, lane.Job) {
			return fmt.Sprintf("; last %s, %s ago", described(w), time.Duration(w.SeenAgo).Round(time.Second))
		}
	}
	return ""
}

func described(w *store.WorkerInfo) string {
	if w.Version == "" {
		return w.Name
	}
	return w.Name + " " + w.Version
}

// some names the first of a list.
func some(names []string) string {
	if len(names) > namedMost {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedMost], ", "), len(names)-namedMost)
	}
	return strings.Join(names, ", ")
}
