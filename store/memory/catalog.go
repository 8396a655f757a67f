package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// workerInfo is what is known of a worker process, for the operator's eyes.
type workerInfo struct {
	name      string
	startedAt time.Time
	seenAt    time.Time

	reportedAt time.Time
	reports    int64           // the number of its last report
	presence   *store.Presence // never changed once it is there; nil: it has not reported, or has stopped
}

// Declare stores a worker, its jobs and its schedules.
func (s *Store) Declare(ctx context.Context, declaration store.Declaration) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("declare: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	worker, now := declaration.Worker, s.now()
	known, again := s.workers[worker.Instance]
	if !again {
		known.startedAt = now
	}
	known.name, known.seenAt = worker.Name, now
	s.workers[worker.Instance] = known
	partly := s.declareLimits(declaration.Limits, known.startedAt, now)
	for _, job := range declaration.Jobs {
		job.Limits = slices.Clone(job.Limits)
		said := rules.JobCodeWith(s.jobCodes[job.Name], rules.JobCodeText(&job.Code), now)
		job.Code = rules.JobCodeOf(said)
		s.jobs[job.Name], s.jobCodes[job.Name] = job, said
	}
	for _, declared := range declaration.Schedules {
		s.declareSchedule(declared, known.startedAt, now)
	}
	if declaration.DisableOrphans > 0 {
		s.disableOrphans(now.Add(-declaration.DisableOrphans), now)
	}
	s.hintIf(len(declaration.Schedules) > 0)
	if len(partly) > 0 {
		return fmt.Errorf("declare: %w", &store.SetAsideError{SetAside: partly})
	}
	return nil
}

// Touch notes that the worker is alive.
func (s *Store) Touch(ctx context.Context, worker store.WorkerID) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("touch: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	known, again := s.workers[worker.Instance]
	if !again {
		known.startedAt = now
	}
	known.name, known.seenAt = worker.Name, now
	s.workers[worker.Instance] = known
	return nil
}

// declareSchedule stores what a worker that started at an instant declares.
func (s *Store) declareSchedule(declared store.Schedule, started, now time.Time) {
	known, found := s.schedules[declared.Name]
	if !found {
		known = &schedule{}
		known.Paused = declared.Paused
		s.schedules[declared.Name] = known
	}
	known.declaredAt = now
	if known.pausedBy == rules.Orphan {
		s.resume(known)
		s.noteSchedule(now, declared.Name, rules.OrphanResumed, rules.Orphan)
	}
	version := rules.Declared{Hash: known.Hash, At: known.hashAt, Brought: known.broughtAt}
	switch {
	case found && known.Hash == declared.Hash:
		known.hashAt = now
	case !found || rules.Supersedes(declared.Hash, started, version, now):
		declared.Paused = known.Paused
		known.redefine(declared, now)
		known.hashAt, known.broughtAt, known.edited = now, started, false
	}
}

// redefine begins a new generation, planned afresh, from now on, unless its
// times are the same.
func (one *schedule) redefine(by store.Schedule, now time.Time) {
	by = copySchedule(by)
	by.Generation, by.NextAt, by.EvaluateAt, by.Waiting = one.Generation+1, time.Time{}, now, 0
	if !rules.SameTimes(&one.Schedule, &by) {
		one.passOver(now)
	} else {
		by.NextAt = one.NextAt
		if one.fault == "" {
			by.EvaluateAt, by.Waiting = one.EvaluateAt, one.Waiting
		}
	}
	one.Schedule, one.over, one.fault = by, false, ""
}

func (s *Store) disableOrphans(since, now time.Time) {
	for name, one := range s.schedules {
		if !one.Paused && !one.declaredAt.IsZero() && one.declaredAt.Before(since) {
			one.passOver(now)
			one.Paused, one.pausedBy = true, rules.Orphan
			s.noteSchedule(now, name, rules.OrphanPaused, rules.Orphan)
		}
	}
}

func copySchedule(s store.Schedule) store.Schedule {
	s.Args = bytes.Clone(s.Args)
	s.Tags, s.Metadata, s.Limits = slices.Clone(s.Tags), maps.Clone(s.Metadata), slices.Clone(s.Limits)
	s.Plan.Blackouts = slices.Clone(s.Plan.Blackouts)
	return s
}

// Jobs lists the declared jobs by name.
func (s *Store) Jobs(ctx context.Context) ([]store.JobInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listJobs(), nil
}

// listJobs is Jobs. The caller holds mu.
func (s *Store) listJobs() []store.JobInfo {
	byName := func(a, b store.JobInfo) int { return cmp.Compare(a.Name, b.Name) }
	return append([]store.JobInfo{}, slices.SortedFunc(maps.Values(s.jobs), byName)...)
}
