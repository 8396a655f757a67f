package operate

import (
	"context"
	"maps"
	"slices"

	"github.com/durable-worker/durable-worker/store"
)

// JobList lists jobs on their queues, by name and then by queue.
type JobList struct {
	Jobs []JobView `json:"jobs"`
	Next *string   `json:"next"` // the After of the next part; nil: this was the last one
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

// Jobs lists the jobs that workers have declared, and those whose runs were enqueued
// and not deleted, on each queue. The Names of a Part are those of jobs.
func (o *Operator) Jobs(ctx context.Context, part Part) (JobList, error) {
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
	for i := range declared {
		known[declared[i].Name], limits[declared[i].Name] = true, declared[i].Limits
	}
	lanes, next, err := cut(withDeclared(f.survey.Lanes, declared), part, func(l *store.LaneInfo) place { return place{l.Job, l.Queue} })
	if err != nil {
		return list, err
	}
	for _, lane := range lanes {
		list.Jobs = append(list.Jobs, JobView{LaneInfo: lane, Declared: known[lane.Job], Limits: whole(limits[lane.Job]), Work: f.onLane(lane.Queue, lane.Job)})
	}
	list.Next = next
	return list, nil
}

// withDeclared adds to lanes those of declared jobs that have none.
func withDeclared(lanes []store.LaneInfo, declared []store.JobInfo) []store.LaneInfo {
	has := map[string]bool{}
	for i := range lanes {
		has[lanes[i].Job] = true
	}
	all := slices.Clone(lanes)
	for i := range declared {
		if !has[declared[i].Name] {
			all = append(all, store.LaneInfo{Queue: declared[i].Queue, Job: declared[i].Name})
		}
	}
	return all
}

// KnownNames are the names of the jobs that workers have declared or of which there are
// runs, and of the queues on which they are, each sorted.
type KnownNames struct{ Jobs, Queues []string }

// Known returns the names that are known.
func (o *Operator) Known(ctx context.Context) (KnownNames, error) {
	declared, err := o.store.Jobs(ctx)
	if err != nil {
		return KnownNames{}, err
	}
	survey, err := o.survey(ctx)
	jobs, queues := map[string]bool{}, map[string]bool{}
	for _, lane := range withDeclared(survey.Lanes, declared) {
		jobs[lane.Job], queues[lane.Queue] = true, true
	}
	return KnownNames{slices.Sorted(maps.Keys(jobs)), slices.Sorted(maps.Keys(queues))}, err
}
