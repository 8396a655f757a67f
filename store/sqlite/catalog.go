package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// Declare stores a worker, its jobs and its schedules.
func (s *Store) Declare(ctx context.Context, declaration store.Declaration) error {
	var partly store.SetAsideError
	var changed []store.LimitID
	err := s.writeAround(ctx, reclaims, func(ctx context.Context, c *change) error {
		worker := declaration.Worker
		pass := func(kind, name string) func(error) {
			return func(err error) {
				partly.SetAside = append(partly.SetAside, store.SetAside{Kind: kind, Name: name, Again: store.DeclareAgain, Err: err})
			}
		}
		err := c.DeclareWorker(ctx, queries.DeclareWorkerParams{Instance: worker.Instance[:], Name: worker.Name, DeclaredAt: c.now})
		if err != nil {
			return err
		}
		started, err := c.FindWorkerStart(ctx, queries.FindWorkerStartParams{Instance: worker.Instance[:]})
		if err != nil {
			return err
		}
		changed, partly.SetAside = nil, nil
		for i := range declaration.Limits {
			if err := c.declareOne(ctx, &declaration.Limits[i], started, &changed, pass(rules.KindLimit, declaration.Limits[i].Name)); err != nil {
				return err
			}
		}
		for _, job := range declaration.Jobs {
			if err := c.around(ctx, func() error { return c.declareJob(ctx, &job) }, pass("job", job.Name)); err != nil {
				return err
			}
		}
		for i := range declaration.Schedules {
			one := &declaration.Schedules[i]
			if err := c.around(ctx, func() error { return c.declareSchedule(ctx, one, started) }, pass("schedule", one.Name)); err != nil {
				return err
			}
		}
		return c.around(ctx, func() error { return c.tidySchedules(ctx, declaration.DisableOrphans) }, pass("schedules", "orphans and skips"))
	})
	if err == nil {
		err = s.announceLimits(ctx, changed...)
	}
	if err != nil {
		return fmt.Errorf("declare: %w", err)
	}
	if len(declaration.Schedules) > 0 {
		s.hint()
	}
	if len(partly.SetAside) > 0 {
		return fmt.Errorf("declare: %w", &partly)
	}
	return nil
}

func (c *change) declareJob(ctx context.Context, job *store.JobInfo) error {
	limits, err := jobLimitsText(job.Limits)
	if err != nil {
		return err
	}
	known, err := c.FindJobCode(ctx, queries.FindJobCodeParams{Name: job.Name})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return c.DeclareJob(ctx, queries.DeclareJobParams{
		Name: job.Name, Queue: job.Queue, Priority: int64(job.Priority), MaxAttempts: int64(job.MaxAttempts),
		Timeout: time.Duration(job.Timeout).Microseconds(), OnCrash: int64(job.OnCrash),
		Retention: time.Duration(job.Retention).Microseconds(), DeclaredAt: c.now, Limits: limits,
		Code: rules.JobCodeWith(known, rules.JobCodeText(&job.Code), instant(c.now)),
	})
}

// Touch writes the worker's row.
func (s *Store) Touch(ctx context.Context, worker store.WorkerID) error {
	err := s.write(ctx, heartbeats, func(ctx context.Context, c *change) error {
		return c.DeclareWorker(ctx, queries.DeclareWorkerParams{Instance: worker.Instance[:], Name: worker.Name, DeclaredAt: c.now})
	})
	if err != nil {
		return fmt.Errorf("touch: %w", err)
	}
	return nil
}

// declareSchedule stores what a worker that started at an instant declares.
func (c *change) declareSchedule(ctx context.Context, declared *store.Schedule, started int64) error {
	row, err := scheduleRow(declared)
	if err != nil {
		return err
	}
	row.DeclaredAt, row.HashAt, row.BroughtAt, row.Hash = &c.now, c.now, started, declared.Hash
	known, err := c.FindSchedule(ctx, queries.FindScheduleParams{Name: declared.Name})
	if errors.Is(err, sql.ErrNoRows) {
		return c.createSchedule(ctx, row, declared.Paused)
	}
	if err != nil {
		return err
	}
	version := rules.Declared{Hash: known.Hash, At: instant(known.HashAt), Brought: instant(known.BroughtAt)}
	if rules.Supersedes(declared.Hash, instant(started), version, instant(c.now)) {
		if err := c.replaceSchedule(ctx, row, known.Spec); err != nil {
			return err
		}
	}
	if known.Paused != 0 && known.PausedBy == rules.Orphan {
		if err := c.ResumeSchedule(ctx, queries.ResumeScheduleParams{Now: &c.now, Name: declared.Name}); err != nil {
			return err
		}
		if err := c.note(ctx, declared.Name, rules.OrphanResumed, rules.Orphan); err != nil {
			return err
		}
	}
	return c.TouchSchedule(ctx, queries.TouchScheduleParams{Now: &c.now, Hash: declared.Hash, Name: declared.Name})
}

// scheduleRow is the part of a row that the schedule itself reports, its hash
// left out.
func scheduleRow(one *store.Schedule) (queries.InsertScheduleParams, error) {
	tags, err := tagsText(one.Tags)
	return queries.InsertScheduleParams{
		Name: one.Name, Spec: specText(one), Job: one.Job, Queue: one.Queue, Priority: int64(one.Priority), Args: notNil(one.Args),
		MaxAttempts: int64(one.MaxAttempts), Timeout: one.Timeout.Microseconds(), OnCrash: int64(one.OnCrash), Tags: tags,
	}, err
}

// createSchedule stores a new schedule. Where one of its name has been, its
// generations continue, since they are part of what runs remember.
func (c *change) createSchedule(ctx context.Context, row queries.InsertScheduleParams, paused bool) error {
	last, err := c.LastGeneration(ctx, queries.LastGenerationParams{Schedule: &row.Name})
	if err != nil {
		return err
	}
	row.Generation, row.LookAt = last+1, &c.now
	if paused {
		row.Paused, row.LookAt = 1, nil
	}
	return c.InsertSchedule(ctx, row)
}

// replaceSchedule begins a new generation. One with the same times as the known
// one keeps its plan; of another is recorded what is due.
func (c *change) replaceSchedule(ctx context.Context, row queries.InsertScheduleParams, knownSpec string) error {
	var keep int64
	now := store.Schedule{Name: row.Name}
	if now.SetSpec([]byte(row.Spec)) == nil && rules.SameSpecTimes(&now, []byte(knownSpec)) {
		keep = 1
	} else if err := c.PassOver(ctx, queries.PassOverParams{Now: c.now, Name: row.Name}); err != nil {
		return err
	}
	return c.ReplaceSchedule(ctx, queries.ReplaceScheduleParams{
		Keep: &keep, Now: &c.now, HashAt: row.HashAt, BroughtAt: row.BroughtAt, Edited: row.Edited, Hash: row.Hash, Spec: row.Spec, Job: row.Job,
		Queue: row.Queue, Priority: row.Priority, Args: row.Args, MaxAttempts: row.MaxAttempts, Timeout: row.Timeout,
		OnCrash: row.OnCrash, Tags: row.Tags, Name: row.Name,
	})
}

// pauseSchedule records what is due of a schedule, and pauses it.
func (c *change) pauseSchedule(ctx context.Context, name, by string) error {
	if err := c.PassOver(ctx, queries.PassOverParams{Now: c.now, Name: name}); err != nil {
		return err
	}
	return c.PauseSchedule(ctx, queries.PauseScheduleParams{PausedBy: &by, Name: name})
}

// tidySchedules pauses orphans, where the worker says so, and forgets old skips.
func (c *change) tidySchedules(ctx context.Context, orphans time.Duration) error {
	if orphans > 0 {
		since := c.now - orphans.Microseconds()
		names, err := c.ListOrphans(ctx, queries.ListOrphansParams{Since: &since})
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := c.pauseSchedule(ctx, name, rules.Orphan); err != nil {
				return err
			}
			if err := c.note(ctx, name, rules.OrphanPaused, rules.Orphan); err != nil {
				return err
			}
		}
	}
	names, err := c.SkippedSchedules(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		seq, err := c.OldestSkip(ctx, queries.OldestSkipParams{Schedule: name, Keep: rules.SkipsKept})
		if err == nil {
			err = c.PruneSkips(ctx, queries.PruneSkipsParams{Schedule: name, Seq: seq})
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	return nil
}

// note records what an operator or a policy did with a schedule.
func (c *change) note(ctx context.Context, schedule, action, by string) error {
	return c.Audit(ctx, queries.AuditParams{At: c.now, Actor: by, Subject: schedule, Action: action})
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Jobs lists the declared jobs by name.
func (s *Store) Jobs(ctx context.Context) ([]store.JobInfo, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", s.explain(err))
	}
	jobs, err := readJobs(ctx, reader.Queries)
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", s.explain(err))
	}
	return jobs, nil
}

func readJobs(ctx context.Context, q *queries.Queries) ([]store.JobInfo, error) {
	rows, err := q.ListJobs(ctx)
	if err != nil {
		return nil, err
	}
	jobs := make([]store.JobInfo, len(rows))
	for i := range rows {
		jobs[i] = jobOf(&rows[i])
	}
	return jobs, nil
}

func jobOf(row *queries.ListJobsRow) store.JobInfo {
	return store.JobInfo{
		Name: row.Name, Queue: row.Queue, Priority: int(row.Priority), MaxAttempts: int(row.MaxAttempts),
		Timeout: store.Duration(duration(row.Timeout)), OnCrash: store.CrashPolicy(row.OnCrash),
		Retention: store.Duration(duration(row.Retention)), Code: rules.JobCodeOf(row.Code), Limits: rules.JobLimits(row.Limits),
	}
}
