package declaring

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Declare stores a worker, its jobs and its schedules. The lanes of schedules
// are created first, in their own transactions, so that their runs find them.
func (dc *Declarer) Declare(ctx context.Context, declaration store.Declaration) error {
	if err := dc.schema.Usable(ctx); err != nil {
		return dc.db.Fail("declare", err)
	}
	if _, err := dc.numbers.RegisterWorker(ctx, declaration.Worker); err != nil {
		return dc.db.Fail("declare", err)
	}
	d := declaring{Declarer: dc, worker: declaration.Worker}
	if err := d.limits(ctx, declaration.Limits); err != nil {
		return dc.db.Fail("declare", err)
	}
	err := d.some(ctx, declaration.Jobs, declaration.Schedules, &declaration)
	if conn.RefusesRows(err) {
		err = d.inParts(ctx, &declaration, err)
	}
	if err != nil {
		return dc.db.Fail("declare", err)
	}
	if len(declaration.Schedules) > 0 {
		dc.wake.Hint()
	}
	if len(d.partly.SetAside) > 0 {
		return fmt.Errorf("declare: %w", &d.partly)
	}
	return nil
}

// declaring is one Declare under way.
type declaring struct {
	*Declarer

	worker store.WorkerID
	partly store.SetAsideError
}

// some declares jobs and schedules in one transaction, which also tidies up after the
// declaration of them all; nil: it does not. Their lanes are made before, on their own, so
// that their runs find them.
func (d *declaring) some(ctx context.Context, jobs []store.JobInfo, schedules []store.Schedule, all *store.Declaration) error {
	if err := d.lanesOf(ctx, schedules); err != nil {
		return err
	}
	return d.db.Repeat(ctx, func() error {
		b := d.db.NewBatch()
		addJobs(b, jobs)
		addSchedules(b, d.worker, schedules)
		if all != nil && all.DisableOrphans > 0 {
			b.Add(queries.DisableOrphans, rules.Orphan, rules.KindSchedule, rules.OrphanPaused, conn.Micro(all.DisableOrphans))
		}
		if all != nil && len(all.Schedules) > 0 {
			b.Add(queries.PruneSkips, int64(rules.SkipsKept))
		}
		if b.Len() == 0 {
			return nil
		}
		return d.db.Send(ctx, d.db.Engine, b)
	})
}

// inParts retries a declaration that the database has refused, in halves, so that a job or a
// schedule that is refused stops no other.
func (d *declaring) inParts(ctx context.Context, declaration *store.Declaration, refused error) error {
	d.db.Log.Warn("the database refuses a part of the declaration; declaring the rest", "event", "declare.refused", "error", refused)
	if err := d.jobs(ctx, declaration.Jobs); err != nil {
		return err
	}
	if err := d.schedules(ctx, declaration.Schedules); err != nil {
		return err
	}
	return d.goOn(d.some(ctx, nil, nil, declaration), "schedules", "orphans and skips")
}

func (d *declaring) jobs(ctx context.Context, jobs []store.JobInfo) error {
	err := d.some(ctx, jobs, nil, nil)
	if half := len(jobs) / 2; conn.RefusesRows(err) && half > 0 {
		if err := d.jobs(ctx, jobs[:half]); err != nil {
			return err
		}
		return d.jobs(ctx, jobs[half:])
	}
	if len(jobs) == 0 {
		return err
	}
	return d.goOn(err, "job", jobs[0].Name)
}

func (d *declaring) schedules(ctx context.Context, schedules []store.Schedule) error {
	err := d.some(ctx, nil, schedules, nil)
	if half := len(schedules) / 2; conn.RefusesRows(err) && half > 0 {
		if err := d.schedules(ctx, schedules[:half]); err != nil {
			return err
		}
		return d.schedules(ctx, schedules[half:])
	}
	if len(schedules) == 0 {
		return err
	}
	return d.goOn(err, "schedule", schedules[0].Name)
}

// lanesOf makes the lanes of schedules.
func (d *declaring) lanesOf(ctx context.Context, schedules []store.Schedule) error {
	set := numbers.LaneSet{}
	for i := range schedules {
		set[numbers.Lane{Queue: schedules[i].Queue, Job: schedules[i].Job, Priority: int16(schedules[i].Priority)}] = 0 //nolint:gosec // checked: -4 to 4
	}
	return d.numbers.LaneIDs(ctx, set)
}

// goOn skips what was refused.
func (d *declaring) goOn(err error, kind, name string) error {
	if !conn.RefusesRows(err) {
		return err
	}
	d.partly.SetAside = append(d.partly.SetAside, store.SetAside{Kind: kind, Name: name, Again: store.DeclareAgain, Err: err})
	return nil
}

func addJobs(b *conn.Batch, jobs []store.JobInfo) {
	if len(jobs) == 0 {
		return
	}
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, func(a, b store.JobInfo) int { return cmp.Compare(a.Name, b.Name) })
	var p queries.DeclareJobsParams
	var limits, codes []*string
	for _, job := range jobs {
		p.Names, p.Queues = append(p.Names, job.Name), append(p.Queues, job.Queue)
		p.Priorities = append(p.Priorities, int16(job.Priority))      //nolint:gosec // checked
		p.MaxAttempts = append(p.MaxAttempts, int32(job.MaxAttempts)) //nolint:gosec // checked
		p.Timeouts = append(p.Timeouts, int64(job.Timeout)/1000)
		p.OnCrashes, p.Retentions = append(p.OnCrashes, int16(job.OnCrash)), append(p.Retentions, conn.Micro(time.Duration(job.Retention)))
		limits, codes = append(limits, jobLimitText(job.Limits)), append(codes, rules.JobCodeText(&job.Code))
	}
	b.Add(queries.DeclareJobs, p.Names, p.Queues, p.Priorities, p.MaxAttempts, p.Timeouts, p.OnCrashes, p.Retentions, limits, codes, conn.Micro(store.DeclaredWithin))
}

func addSchedules(b *conn.Batch, worker store.WorkerID, schedules []store.Schedule) {
	if len(schedules) == 0 {
		return
	}
	schedules = slices.Clone(schedules)
	slices.SortFunc(schedules, func(a, b store.Schedule) int { return cmp.Compare(a.Name, b.Name) })
	var p queries.InsertSchedulesParams
	var tags, limits []*string
	for i := range schedules {
		one := &schedules[i]
		p.Names, p.Hashes, p.Specs = append(p.Names, one.Name), append(p.Hashes, one.Hash), append(p.Specs, string(one.Spec()))
		p.Jobs, p.Queues = append(p.Jobs, one.Job), append(p.Queues, one.Queue)
		p.Priorities = append(p.Priorities, int16(one.Priority))      //nolint:gosec // checked
		p.MaxAttempts = append(p.MaxAttempts, int32(one.MaxAttempts)) //nolint:gosec // checked
		p.Timeouts, p.OnCrashes = append(p.Timeouts, conn.Micro(one.Timeout)), append(p.OnCrashes, int16(one.OnCrash))
		p.Args, tags, p.Paused = append(p.Args, string(one.Args)), append(tags, conn.TextArray(one.Tags)), append(p.Paused, one.Paused)
		limits = append(limits, conn.TextArray(store.LimitTexts(one.Limits)))
	}
	columns := []any{p.Names, p.Specs, p.Hashes, p.Jobs, p.Queues, p.Priorities, p.MaxAttempts, p.Timeouts, p.OnCrashes, p.Args, tags, limits}
	b.Add(queries.LockSchedules, p.Names)
	b.Add(queries.InsertSchedules, append(append([]any{worker.Instance}, columns...), p.Paused)...)
	b.Add(queries.ReplaceSchedules, append(columns, worker.Instance, timesPaths(), conn.Micro(store.DeclaredWithin))...)
	b.Add(queries.TouchSchedules, rules.Orphan, rules.KindSchedule, rules.OrphanResumed, p.Names, p.Hashes)
}

// timesPaths are the parts of a spec on which it depends when a schedule fires, as
// PostgreSQL reads paths.
func timesPaths() (paths []string) {
	for _, path := range rules.TimesPaths() {
		paths = append(paths, *conn.TextArray(path))
	}
	return paths
}
