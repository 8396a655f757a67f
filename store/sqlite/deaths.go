package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// Deaths returns the oldest deaths of runs of the jobs; see store.Deaths.
func (s *Store) Deaths(ctx context.Context, jobs []string, limit int) ([]store.DeathRecord, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("deaths: %w", s.explain(err))
	}
	names, _ := json.Marshal(jobs) // texts always can be
	rows, err := reader.ListDeaths(ctx, queries.ListDeathsParams{Jobs: string(names), Most: int64(min(limit, store.MaxDeaths))})
	if err != nil {
		return nil, fmt.Errorf("deaths: %w", s.explain(err))
	}
	deaths, now := make([]store.DeathRecord, len(rows)), s.clock.now()
	for i := range rows {
		row := &rows[i]
		deaths[i] = store.DeathRecord{ID: row.ID, Run: store.RunID(row.RunID), Job: row.Job, RanAs: row.RanAs, At: instant(row.DiedAt),
			Age: max(duration(now-row.DiedAt), 0), Args: row.Args, Reason: row.Reason}
	}
	return deaths, nil
}

// EnqueueForDeaths stores the runs of deaths that are still there; see store.Deaths.
func (s *Store) EnqueueForDeaths(ctx context.Context, deaths []store.DeathRun) (stored int, err error) {
	runs, err := store.CheckDeathRuns(deaths)
	if err == nil {
		err = s.checkLimits(ctx, runs)
	}
	if err != nil {
		return 0, fmt.Errorf("enqueue for deaths: %w", err)
	}
	fresh := newLanes()
	err = s.write(ctx, enqueues, func(ctx context.Context, c *change) error {
		taken := call{}
		for i := range deaths {
			found, err := c.DeleteDeath(ctx, queries.DeleteDeathParams{ID: deaths[i].Death})
			if err != nil {
				return err
			}
			if found > 0 {
				taken.runs = append(taken.runs, deaths[i].Run)
			}
		}
		if stored = len(taken.runs); stored == 0 {
			return nil
		}
		return s.store(ctx, c, fresh, &taken)
	})
	if err != nil {
		return 0, fmt.Errorf("enqueue for deaths: %w", err)
	}
	s.lanes.add(fresh)
	if stored > 0 {
		s.hint()
	}
	return stored, nil
}
