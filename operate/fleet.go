package operate

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

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
	queued  map[string]float64 // rates of all jobs of a queue together

	crews []*crew // of workers, made when it is asked for
}

type laneKey struct{ queue, job string }

// crew is workers that take the same jobs from the same queues. Most of a fleet are alike,
// so that there are few crews to ask.
type crew struct {
	queues, jobs map[string]bool
	more         bool  // they may take others, too
	members      []int // in fleet.workers
}

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
	f.rates, f.queued = map[laneKey]float64{}, map[string]float64{}
	first := f.survey.At.Add(-rated).Truncate(time.Minute).Add(time.Minute) // the first step that is whole
	for i := range steps {
		if !steps[i].At.Before(first) {
			rate := float64(steps[i].Ended()) / f.survey.At.Sub(first).Minutes()
			f.rates[laneKey{steps[i].Queue, steps[i].Job}] += rate
			f.queued[steps[i].Queue] += rate
		}
	}
	return f, err
}

// crewed are the crews of the workers that take runs.
func (f *fleet) crewed() []*crew {
	if f.crews != nil {
		return f.crews
	}
	alike := map[string]*crew{}
	for i := range f.workers {
		w := &f.workers[i]
		if w.State != store.Working {
			continue
		}
		what := strings.Join(w.Queues, "\x00") + "\x01" + strings.Join(w.Jobs, "\x00")
		if w.More {
			what += "\x01"
		}
		c := alike[what]
		if c == nil {
			c = &crew{queues: setOf(w.Queues), jobs: setOf(w.Jobs), more: w.More}
			alike[what] = c
			f.crews = append(f.crews, c)
		}
		c.members = append(c.members, i)
	}
	return f.crews
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// serves reports whether the crew takes runs of a job from a queue, as store.WorkerInfo.Serves
// does.
func (c *crew) serves(queue, job string) bool { return c.more || c.queues[queue] && c.jobs[job] }

// served reports whether a living worker serves a lane.
func (f *fleet) served(lane *store.LaneInfo) bool {
	return slices.ContainsFunc(f.crewed(), func(c *crew) bool { return c.serves(lane.Queue, lane.Job) })
}

// work is what the crews that match do, at a rate.
func (f *fleet) work(rate float64, serves func(*crew) bool) Work {
	w := Work{Workers: []string{}, Rate: rate}
	var members []int
	for _, c := range f.crewed() {
		if serves(c) {
			w.ServedBy += len(c.members)
			members = append(members, c.members[:min(len(c.members), namedMost)]...)
		}
	}
	slices.Sort(members)
	for _, i := range members[:min(len(members), namedMost)] {
		w.Workers = append(w.Workers, f.workers[i].Name)
	}
	return w
}

// onQueue is what is done of the runs of a queue.
func (f *fleet) onQueue(name string) Work {
	return f.work(f.queued[name], func(c *crew) bool { return c.more || c.queues[name] })
}

// onLane is what is done of the runs of a job on a queue.
func (f *fleet) onLane(queue, job string) Work {
	return f.work(f.rates[laneKey{queue, job}], func(c *crew) bool { return c.serves(queue, job) })
}
