package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/postgres/internal/queries"
)

// Declare stores a worker, its jobs and its schedules. The lanes of schedules
// are made first, on their own, so that their runs find them.
func (s *Store) Declare(ctx context.Context, declaration durable.Declaration) error {
	if err := s.usable(ctx); err != nil {
		return s.fail("declare", err)
	}
	if _, err := s.registerWorker(ctx, declaration.Worker); err != nil {
		return s.fail("declare", err)
	}
	set := laneSet{}
	for _, one := range declaration.Schedules {
		set[lane{one.Queue, one.Job, int16(one.Priority)}] = 0 //nolint:gosec // checked: -4 to 4
	}
	if err := s.laneIDs(ctx, set); err != nil {
		return s.fail("declare", err)
	}
	err := s.repeat(ctx, func() error {
		b := &batch{names: s.names}
		addJobs(b, declaration.Jobs)
		addSchedules(b, declaration.Worker, declaration.Schedules)
		if declaration.DisableOrphans > 0 {
			b.add(queries.DisableOrphans, micro(declaration.DisableOrphans))
		}
		if len(declaration.Schedules) > 0 {
			b.add(queries.PruneSkips, int64(skipsKept))
		}
		if b.Len() == 0 {
			return nil
		}
		return s.send(ctx, s.general, b)
	})
	if err != nil {
		return s.fail("declare", err)
	}
	if len(declaration.Schedules) > 0 {
		s.hint()
	}
	return nil
}

func addJobs(b *batch, jobs []durable.JobInfo) {
	if len(jobs) == 0 {
		return
	}
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, func(a, b durable.JobInfo) int { return cmp.Compare(a.Name, b.Name) })
	var p queries.DeclareJobsParams
	for _, job := range jobs {
		p.Names, p.Queues = append(p.Names, job.Name), append(p.Queues, job.Queue)
		p.Priorities = append(p.Priorities, int16(job.Priority))      //nolint:gosec // checked
		p.MaxAttempts = append(p.MaxAttempts, int32(job.MaxAttempts)) //nolint:gosec // checked
		p.Timeouts = append(p.Timeouts, int64(job.Timeout)/1000)
		p.OnCrashes, p.Retentions = append(p.OnCrashes, int16(job.OnCrash)), append(p.Retentions, micro(time.Duration(job.Retention)))
	}
	b.add(queries.DeclareJobs, p.Names, p.Queues, p.Priorities, p.MaxAttempts, p.Timeouts, p.OnCrashes, p.Retentions)
}

// skipsKept bounds the skips that are kept of each schedule, hourly.
const skipsKept = 1000

func addSchedules(b *batch, worker durable.WorkerID, schedules []durable.Schedule) {
	if len(schedules) == 0 {
		return
	}
	schedules = slices.Clone(schedules)
	slices.SortFunc(schedules, func(a, b durable.Schedule) int { return cmp.Compare(a.Name, b.Name) })
	var p queries.InsertSchedulesParams
	var tags []*string
	for i := range schedules {
		one := &schedules[i]
		p.Names, p.Hashes, p.Specs = append(p.Names, one.Name), append(p.Hashes, one.Hash), append(p.Specs, string(one.Spec()))
		p.Jobs, p.Queues = append(p.Jobs, one.Job), append(p.Queues, one.Queue)
		p.Priorities = append(p.Priorities, int16(one.Priority))      //nolint:gosec // checked
		p.MaxAttempts = append(p.MaxAttempts, int32(one.MaxAttempts)) //nolint:gosec // checked
		p.Timeouts, p.OnCrashes = append(p.Timeouts, micro(one.Timeout)), append(p.OnCrashes, int16(one.OnCrash))
		p.Args, tags, p.Paused = append(p.Args, string(one.Args)), append(tags, textArray(one.Tags)), append(p.Paused, one.Paused)
	}
	columns := []any{p.Names, p.Specs, p.Hashes, p.Jobs, p.Queues, p.Priorities, p.MaxAttempts, p.Timeouts, p.OnCrashes, p.Args, tags}
	b.add(queries.LockSchedules, p.Names)
	b.add(queries.InsertSchedules, append(append([]any{worker.Instance}, columns...), p.Paused)...)
	b.add(queries.ReplaceSchedules, append(columns, worker.Instance, micro(durable.DeclaredWithin))...)
	b.add(queries.TouchSchedules, p.Names, p.Hashes)
}

// Jobs lists the declared jobs.
func (s *Store) Jobs(ctx context.Context) ([]durable.JobInfo, error) {
	if err := s.usable(ctx); err != nil {
		return nil, s.fail("jobs", err)
	}
	rows, err := s.queries(s.general).Jobs(ctx)
	if err != nil {
		return nil, s.fail("jobs", err)
	}
	jobs := make([]durable.JobInfo, len(rows))
	for i, row := range rows {
		jobs[i] = durable.JobInfo{
			Name: row.Name, Queue: row.Queue, Priority: int(row.Priority), MaxAttempts: int(row.MaxAttempts),
			Timeout: durable.Duration(fromMicro(row.Timeout)), OnCrash: crashPolicy(row.OnCrash), Retention: durable.Duration(fromMicro(row.Retention)),
		}
	}
	return jobs, nil
}
