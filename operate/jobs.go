package operate

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// JobList lists jobs on their queues, by name.
type JobList struct {
	Jobs []JobView `json:"jobs"`
	Next *string   `json:"next"` // always nil: the list is complete
}

// JobView is a job on one of the queues on which runs of it were enqueued, or on the
// queue that its workers have declared.
type JobView struct {
	store.LaneInfo

	Declared bool `json:"declared"` // by a worker, in whatever version
	// Limits are those that the job's runs have.
	Limits []store.JobLimit `json:"limits"`
	Work
}

// Work is what is done of some runs, and by how many.
type Work struct {
	ServedBy int      `json:"served_by"` // living workers that take such runs
	Workers  []string `json:"workers"`   // names of some of them
	Rate     float64  `json:"rate"`      // attempts that ended, a minute, over the last five, as workers have reported
}

// fleet is what is known about the workers and the runs that wait.
type fleet struct {
	workers []store.WorkerInfo
	survey  store.Survey
	rates   map[laneKey]float64
}

type laneKey struct{ queue, job string }

// rated is over how long the rate is measured.
const rated = 5 * time.Minute

func (o *Operator) fleet(ctx context.Context) (f fleet, err error) {
	if f.workers, err = o.workers(ctx); err != nil {
		return f, err
	}
	if f.survey, err = o.survey(ctx); err != nil {
		return f, err
	}
	steps, err := o.rates(ctx)
	f.rates = map[laneKey]float64{}
	first := f.survey.At.Add(-rated).Truncate(time.Minute).Add(time.Minute) // the first step that is whole
	for i := range steps {
		if !steps[i].At.Before(first) {
			f.rates[laneKey{steps[i].Queue, steps[i].Job}] += float64(steps[i].Ended()) / f.survey.At.Sub(first).Minutes()
		}
	}
	return f, err
}

// work is what is done of the runs that match.
func (f *fleet) work(serves func(*store.WorkerInfo) bool, counts func(laneKey) bool) (w Work) {
	w.Workers = []string{}
	for i := range f.workers {
		if !serves(&f.workers[i]) {
			continue
		}
		if w.ServedBy++; len(w.Workers) < namedMost {
			w.Workers = append(w.Workers, f.workers[i].Name)
		}
	}
	for key, rate := range f.rates {
		if counts(key) {
			w.Rate += rate
		}
	}
	return w
}

// Jobs lists the jobs that workers have declared, and those whose runs were enqueued
// and not deleted, on each queue.
func (o *Operator) Jobs(ctx context.Context) (JobList, error) {
	list := JobList{Jobs: []JobView{}}
	declared, err := o.store.Jobs(ctx)
	if err != nil {
		return list, err
	}
	f, err := o.fleet(ctx)
	if err != nil {
		return list, err
	}
	known, limits := map[string]bool{}, map[string][]store.JobLimit{}
	for _, job := range declared {
		known[job.Name], limits[job.Name] = true, job.Limits
		if !slices.ContainsFunc(f.survey.Lanes, func(l store.LaneInfo) bool { return l.Job == job.Name }) {
			f.survey.Lanes = append(f.survey.Lanes, store.LaneInfo{Queue: job.Queue, Job: job.Name})
		}
	}
	for _, lane := range f.survey.Lanes {
		list.Jobs = append(list.Jobs, JobView{LaneInfo: lane, Declared: known[lane.Job], Limits: whole(limits[lane.Job]), Work: f.work(
			func(w *store.WorkerInfo) bool { return w.Serves(lane.Queue, lane.Job) },
			func(key laneKey) bool { return key == laneKey{lane.Queue, lane.Job} })})
	}
	slices.SortStableFunc(list.Jobs, func(a, b JobView) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Queue, b.Queue)) })
	return list, nil
}
