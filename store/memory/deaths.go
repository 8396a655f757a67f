package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// noteDeath keeps that a run has died, if its job has a job for that.
func (s *Store) noteDeath(r *run, reason string, now time.Time) {
	job := rules.JobOf(s.listJobs(), r.lane.name.job)
	if job == nil || job.Code.OnDead == "" || job.Code.OnDead == job.Name || job.Code.OnDead == r.lane.name.job {
		return
	}
	s.lastDeath++
	s.deaths = append(s.deaths, store.DeathRecord{ID: s.lastDeath, Run: r.id, Job: job.Name, RanAs: r.lane.name.job, At: now, Args: r.args, Reason: reason})
}

// Deaths returns the oldest deaths of runs of the jobs; see store.Deaths.
func (s *Store) Deaths(ctx context.Context, jobs []string, limit int) (deaths []store.DeathRecord, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("deaths: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, death := range s.deaths {
		if len(deaths) < min(limit, store.MaxDeaths) && slices.Contains(jobs, death.Job) {
			death.Age, death.Args = max(now.Sub(death.At), 0), bytes.Clone(death.Args)
			deaths = append(deaths, death)
		}
	}
	return deaths, nil
}

// EnqueueForDeaths stores the runs of deaths that are still there; see store.Deaths.
func (s *Store) EnqueueForDeaths(ctx context.Context, deaths []store.DeathRun) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("enqueue for deaths: %w", err)
	}
	runs, err := store.CheckDeathRuns(deaths)
	if err != nil {
		return 0, fmt.Errorf("enqueue for deaths: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLimits(runs); err != nil {
		return 0, fmt.Errorf("enqueue for deaths: %w", err)
	}
	runs = runs[:0]
	for i := range deaths {
		at := slices.IndexFunc(s.deaths, func(d store.DeathRecord) bool { return d.ID == deaths[i].Death })
		if at >= 0 {
			s.deaths = slices.Delete(s.deaths, at, at+1)
			runs = append(runs, deaths[i].Run)
		}
	}
	s.take(nil, runs)
	return len(runs), nil
}
