package operate

import (
	"context"
	"fmt"
	"maps"
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
	alive := fleet.alive()
	found(&f, "workers", fleet.attendWorkers())
	switch {
	case len(f) == 0 && alive == 0:
		f.Warn("workers", fleet.headCount(), "start one")
	case len(f) == 0:
		f.Fine("workers", fleet.headCount())
	}
	if alive > 0 {
		before := len(f)
		found(&f, "jobs", fleet.attendLanes())
		jobs, err := o.store.Jobs(ctx)
		if err != nil {
			f.Fail("jobs", err.Error(), "repeat it when the database answers")
			return f
		}
		if f = append(f, examineJobs(&fleet, jobs)...); len(f) == before {
			f.Fine("jobs", "living workers serve every job on its queue, and every queue on which runs wait")
		}
	}
	return f
}

// found adds what needs attention to findings.
func found(f *store.Findings, name string, items []Attention) {
	for i := range items {
		*f = append(*f, store.Finding{Name: name, Level: items[i].Level, Text: items[i].Text, Hint: items[i].hint()})
	}
}

// headCount says how many workers are alive, and which are not.
func (f *fleet) headCount() string {
	draining, silent := 0, []string{}
	for i := range f.workers {
		switch w := &f.workers[i]; w.State {
		case store.Draining:
			draining++
		case store.Silent:
			silent = append(silent, fmt.Sprintf("%s (%s ago)", described(w), seconds(time.Duration(w.SeenAgo))))
		}
	}
	text := counted(store.Count{N: int64(f.alive())}, "worker alive", "workers alive")
	if draining > 0 {
		text += fmt.Sprintf(", %d of them draining", draining)
	}
	if len(silent) > 0 {
		text += fmt.Sprintf("; silent: %s", some(silent))
	}
	return text
}

// attendWorkers examines who is alive. Silent workers are one thing that needs attention,
// without runs that are due too.
func (f *fleet) attendWorkers() []Attention {
	text, alive := f.headCount(), f.alive()
	due, oldest := f.due()
	switch {
	case alive == 0 && due.N > 0:
		since := f.survey.At.Add(-oldest)
		return []Attention{{Kind: AttentionNoWorkers, Level: store.Failed, Subject: "workers", Since: &since, Count: &due,
			Text: fmt.Sprintf("%s; %s, the oldest for %s", text, counted(due, "run due", "runs due"), seconds(oldest)), Next: []Remedy{{"start_worker", RoleDeployer, "start a worker", ""}}}}
	case alive == 0 && len(f.workers) > 0:
		return []Attention{{Kind: AttentionSilentWorkers, Level: store.Warning, Subject: "workers", Text: text,
			Next: []Remedy{{"start_worker", RoleDeployer, "start one", ""}}}}
	case len(f.workers) > alive:
		return []Attention{{Kind: AttentionSilentWorkers, Level: store.Warning, Subject: "workers", Text: text,
			Next: []Remedy{{"workers", RoleViewer, "see why it ended: a worker that stops normally is not listed; a silent one is listed for a day", "workers list"}}}}
	default:
		return nil
	}
}

// due counts the runs that wait, paused queues left out, and says how long the first
// one has.
func (f *fleet) due() (due store.Count, oldest time.Duration) {
	for i := range f.survey.Lanes {
		lane := &f.survey.Lanes[i]
		if lane.Paused {
			continue
		}
		due = due.Plus(lane.Due)
		if lane.OldestDue != nil {
			oldest = max(oldest, f.survey.At.Sub(*lane.OldestDue))
		}
	}
	return due, oldest
}

// lanesMost bounds what is said of jobs.
const lanesMost = 100

// attendLanes looks for jobs on queues that no living worker serves.
func (f *fleet) attendLanes() (items []Attention) {
	var unserved, later []*store.LaneInfo
	for i := range f.survey.Lanes {
		switch lane := &f.survey.Lanes[i]; {
		case lane.Pending.N == 0 || f.served(lane):
		case overdue(lane):
			unserved = append(unserved, lane)
		default:
			later = append(later, lane)
		}
	}
	unserved = append(unserved, later...)
	for _, lane := range unserved[:min(len(unserved), lanesMost)] {
		items = append(items, f.attendLane(lane))
	}
	if left := unserved[len(items):]; len(left) > 0 {
		items = append(items, attendMoreLanes(left))
	}
	return items
}

// overdue reports whether a lane has runs that would start if a worker served it.
func overdue(lane *store.LaneInfo) bool { return lane.Due.N > 0 && !lane.Paused }

// attendLane says that no living worker serves a lane.
func (f *fleet) attendLane(lane *store.LaneInfo) Attention {
	text := fmt.Sprintf("no living worker serves job %s on queue %s", lane.Job, lane.Queue)
	a := Attention{Kind: AttentionUnserved, Level: store.Warning, Subject: lane.Job + " on " + lane.Queue, Job: lane.Job, Queue: lane.Queue, Count: &lane.Pending,
		Text: fmt.Sprintf("%s: %s%s", text, counted(lane.Pending, "run waits", "runs wait"), f.last(lane)),
		Next: []Remedy{{"start_worker", RoleDeployer, "start a worker that has the job and serves the queue" + f.advice(lane), ""}}}
	if overdue(lane) {
		age := seconds(f.survey.At.Sub(*lane.OldestDue))
		a.Level, a.Count, a.Since = store.Failed, &lane.Due, lane.OldestDue
		a.Text = fmt.Sprintf("%s: %s, the oldest for %s%s", text, counted(lane.Due, "run due", "runs due"), age, f.last(lane))
	}
	return a
}

// attendMoreLanes says of how many more lanes that is so, the overdue ones first.
func attendMoreLanes(lanes []*store.LaneInfo) Attention {
	var runs store.Count
	for _, lane := range lanes {
		runs = runs.Plus(lane.Pending)
	}
	a := Attention{Kind: AttentionUnserved, Level: store.Warning, Subject: "more jobs", Count: &runs,
		Text: fmt.Sprintf("no living worker serves %d more jobs on their queues: %s", len(lanes), counted(runs, "run waits", "runs wait")),
		Next: []Remedy{{"jobs", RoleViewer, "see all jobs that no worker serves", "jobs list"}}}
	if overdue(lanes[0]) {
		a.Level = store.Failed
	}
	return a
}

// examineJobs looks for queues of jobs that living workers have, none of which serves the
// queue. Where runs wait, attendLanes says so.
func examineJobs(of *fleet, jobs []store.JobInfo) (f store.Findings) {
	unserved, serve := map[string][]string{}, map[string][]string{} // by queue: its jobs, and the queues of workers that have these
	waits := map[laneKey]bool{}
	for i := range of.survey.Lanes {
		if lane := &of.survey.Lanes[i]; lane.Pending.N > 0 {
			waits[laneKey{lane.Queue, lane.Job}] = true
		}
	}
	for i := range jobs {
		lane := store.LaneInfo{Queue: jobs[i].Queue, Job: jobs[i].Name}
		if waits[laneKey{lane.Queue, lane.Job}] || of.served(&lane) {
			continue
		}
		if queues, _ := nearlyServing(of.workers, lane.Job, lane.Queue); len(queues) > 0 {
			unserved[lane.Queue], serve[lane.Queue] = append(unserved[lane.Queue], lane.Job), append(serve[lane.Queue], queues...)
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(unserved)) {
		queues := slices.Compact(slices.Sorted(slices.Values(serve[queue])))
		f.Warn("jobs", fmt.Sprintf("no living worker serves queue %s, on which runs of job %s are enqueued: they would wait", queue, some(unserved[queue])),
			"let a worker that has the job serve the queue; those that have it serve the queues "+some(queues))
	}
	return f
}

// advice says what the living workers serve that comes near.
func (f *fleet) advice(lane *store.LaneInfo) string {
	queues, names := nearlyServing(f.workers, lane.Job, lane.Queue)
	switch {
	case len(queues) > 0:
		return "; those that have the job serve the queues " + some(queues)
	case len(names) > 0:
		return "; those that serve the queue do not have the job (a renamed job needs durable.Alias): " + some(names)
	default:
		return ""
	}
}

// serves reports whether a worker reports that it executes a job's runs on a queue. One
// that serves more than its report holds (More) may do so nevertheless.
func serves(w *store.WorkerInfo, job, queue string) bool {
	return slices.Contains(w.Queues, queue) && slices.Contains(w.Jobs, job)
}

// nearlyServing are the queues that working workers with the job serve, and the names of
// those that serve the queue without the job.
func nearlyServing(workers []store.WorkerInfo, job, queue string) (queues, others []string) {
	for i := range workers {
		w := &workers[i]
		switch {
		case w.State != store.Working:
		case slices.Contains(w.Jobs, job):
			queues = append(queues, w.Queues...)
		case slices.Contains(w.Queues, queue):
			others = append(others, w.Name)
		}
	}
	slices.Sort(queues)
	return slices.Compact(queues), others
}

// last names a silent worker that served a lane.
func (f *fleet) last(lane *store.LaneInfo) string {
	for i := range f.workers {
		w := &f.workers[i]
		if w.State == store.Silent && serves(w, lane.Job, lane.Queue) {
			return fmt.Sprintf("; last %s, %s ago", described(w), seconds(time.Duration(w.SeenAgo)))
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
