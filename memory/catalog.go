package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

// workerInfo is what is known of a worker process, for the operator's eyes.
type workerInfo struct {
	name   string
	seenAt time.Time
}

// Declare stores a worker, its jobs and its schedules.
func (s *Store) Declare(ctx context.Context, declaration durable.Declaration) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("declare: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	worker := declaration.Worker
	s.workers[worker.Instance] = workerInfo{name: worker.Name, seenAt: s.now()}
	for _, job := range declaration.Jobs {
		s.jobs[job.Name] = job
	}
	for _, declared := range declaration.Schedules {
		s.declareSchedule(declared)
	}
	return nil
}

// declareSchedule stores a schedule that is new or has another hash, unplanned.
func (s *Store) declareSchedule(declared durable.Schedule) {
	var generation int64
	if known, ok := s.schedules[declared.Name]; ok {
		if known.Hash == declared.Hash {
			return
		}
		generation = known.Generation
	}
	declared = copySchedule(declared)
	declared.Generation = generation + 1
	declared.NextAt = time.Time{}
	s.schedules[declared.Name] = &schedule{Schedule: declared}
}

func copySchedule(s durable.Schedule) durable.Schedule {
	s.Args = bytes.Clone(s.Args)
	s.Tags = slices.Clone(s.Tags)
	return s
}

// Jobs lists the declared jobs by name.
func (s *Store) Jobs(ctx context.Context) ([]durable.JobInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	byName := func(a, b durable.JobInfo) int { return cmp.Compare(a.Name, b.Name) }
	return slices.SortedFunc(maps.Values(s.jobs), byName), nil
}
