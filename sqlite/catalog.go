package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/sqlite/internal/queries"
)

// Declare stores a worker, its jobs and its schedules.
func (s *Store) Declare(ctx context.Context, declaration durable.Declaration) error {
	err := s.write(ctx, reclaims, func(ctx context.Context, c *change) error {
		worker := declaration.Worker
		err := c.DeclareWorker(ctx, queries.DeclareWorkerParams{Instance: worker.Instance[:], Name: worker.Name, DeclaredAt: c.now})
		if err != nil {
			return err
		}
		for _, job := range declaration.Jobs {
			err := c.DeclareJob(ctx, queries.DeclareJobParams{
				Name: job.Name, Queue: job.Queue, Priority: int64(job.Priority), MaxAttempts: int64(job.MaxAttempts),
				Timeout: time.Duration(job.Timeout).Microseconds(), OnCrash: int64(job.OnCrash), DeclaredAt: c.now,
			})
			if err != nil {
				return err
			}
		}
		for i := range declaration.Schedules {
			if err := c.declareSchedule(ctx, &declaration.Schedules[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("declare: %w", err)
	}
	return nil
}

// declareSchedule stores a schedule that is new or has another hash, unplanned.
func (c *change) declareSchedule(ctx context.Context, declared *durable.Schedule) error {
	hash, err := c.FindScheduleHash(ctx, queries.FindScheduleHashParams{Name: declared.Name})
	switch {
	case err == nil && hash == declared.Hash:
		return c.TouchSchedule(ctx, queries.TouchScheduleParams{DeclaredAt: c.now, Name: declared.Name})
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return err
	}
	known := err == nil
	tags, err := tagsText(declared.Tags)
	if err != nil {
		return err
	}
	row := queries.InsertScheduleParams{
		Name:        declared.Name,
		Hash:        declared.Hash,
		Cron:        declared.Rule.Cron,
		Zone:        declared.Rule.Zone,
		Every:       time.Duration(declared.Rule.Every).Microseconds(),
		Job:         declared.Job,
		Queue:       declared.Queue,
		Priority:    int64(declared.Priority),
		Args:        notNil(declared.Args),
		MaxAttempts: int64(declared.MaxAttempts),
		Timeout:     declared.Timeout.Microseconds(),
		OnCrash:     int64(declared.OnCrash),
		Tags:        tags,
		DeclaredAt:  c.now,
	}
	if known {
		return c.ReplaceSchedule(ctx, queries.ReplaceScheduleParams(row))
	}
	return c.InsertSchedule(ctx, row)
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Jobs lists the declared jobs by name.
func (s *Store) Jobs(ctx context.Context) ([]durable.JobInfo, error) {
	look, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", s.explain(err))
	}
	rows, err := look.ListJobs(ctx)
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", s.explain(err))
	}
	jobs := make([]durable.JobInfo, len(rows))
	for i, row := range rows {
		jobs[i] = durable.JobInfo{
			Name: row.Name, Queue: row.Queue, Priority: int(row.Priority), MaxAttempts: int(row.MaxAttempts),
			Timeout: durable.Duration(duration(row.Timeout)), OnCrash: durable.CrashPolicy(row.OnCrash),
		}
	}
	return jobs, nil
}
