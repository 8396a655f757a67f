package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/sqlite/internal/queries"
)

// faultPause is how long a schedule rests whose rule cannot be evaluated.
const faultPause = time.Minute

// Materialize evaluates due schedules. decide is called inside the write
// transaction and must not call the store.
func (s *Store) Materialize(
	ctx context.Context, limit int, decide func(now time.Time, s durable.Schedule) durable.Decision,
) (durable.Materialized, error) {
	if err := ctx.Err(); err != nil {
		return durable.Materialized{}, fmt.Errorf("materialize: %w", err)
	}
	if !s.evaluating.TryLock() {
		return durable.Materialized{Busy: true}, nil
	}
	defer s.evaluating.Unlock()
	var done durable.Materialized
	fresh := newLanes()
	err := s.write(ctx, reclaims, func(ctx context.Context, c *change) error {
		due, err := c.DueSchedules(ctx, queries.DueSchedulesParams{Now: &c.now, Most: int64(max(limit, 0))})
		if err != nil {
			return err
		}
		done = durable.Materialized{Due: len(due), Next: -1}
		for i := range due {
			rule, err := scheduleOf(&due[i])
			if err != nil {
				return err
			}
			decision := decide(instant(c.now), rule)
			ids, err := s.advance(ctx, c, fresh, &rule, &decision)
			if err != nil {
				return err
			}
			done.Runs = append(done.Runs, ids...)
		}
		next, err := c.NextLook(ctx)
		if next >= 0 {
			done.Next = max(duration(next-c.now), 0)
		}
		return err
	})
	if err != nil {
		return durable.Materialized{}, fmt.Errorf("materialize: %w", err)
	}
	s.lanes.add(fresh)
	if len(done.Runs) > 0 {
		s.hints.give()
	}
	return done, nil
}

func scheduleOf(row *queries.DueSchedulesRow) (durable.Schedule, error) {
	tags, err := tagsOf(row.Tags)
	if len(tags) == 0 {
		tags = nil
	}
	schedule := durable.Schedule{
		Name:        row.Name,
		Rule:        durable.Rule{Cron: row.Cron, Zone: row.Zone, Every: durable.Duration(duration(row.Every))},
		Hash:        row.Hash,
		Generation:  row.Generation,
		Job:         row.Job,
		Queue:       row.Queue,
		Priority:    int(row.Priority),
		Args:        row.Args,
		MaxAttempts: int(row.MaxAttempts),
		Timeout:     duration(row.Timeout),
		OnCrash:     durable.CrashPolicy(row.OnCrash),
		Tags:        tags,
	}
	if row.NextAt != nil {
		schedule.NextAt = instant(*row.NextAt)
	}
	return schedule, err
}

// advance stores what was decided for one schedule and returns the new runs.
// Runs that may not be stored are a fault of this schedule and of no other.
func (s *Store) advance(
	ctx context.Context, c *change, fresh *lanes, rule *durable.Schedule, decision *durable.Decision,
) ([]durable.RunID, error) {
	fault := decision.Fault
	if fault == "" {
		runs := make([]durable.NewRun, len(decision.Occurrences))
		for i, o := range decision.Occurrences {
			runs[i] = o.Run
		}
		if err := durable.CheckRuns(runs); err != nil {
			fault = err.Error()
		}
	}
	if fault != "" {
		look := c.now + faultPause.Microseconds()
		return nil, c.PostponeSchedule(ctx, queries.PostponeScheduleParams{LookAt: &look, Fault: &fault, Name: rule.Name})
	}
	var ids []durable.RunID
	for i := range decision.Occurrences {
		o := &decision.Occurrences[i]
		stored, err := s.insertOccurrence(ctx, c, fresh, rule, o)
		if err != nil {
			return nil, err
		}
		if stored {
			ids = append(ids, o.Run.ID)
		}
	}
	return ids, c.AdvanceSchedule(ctx, queries.AdvanceScheduleParams{NextAt: micros(decision.NextAt), Name: rule.Name})
}

// insertOccurrence stores one occurrence unless it is there.
func (s *Store) insertOccurrence(
	ctx context.Context, c *change, fresh *lanes, rule *durable.Schedule, o *durable.Occurrence,
) (stored bool, err error) {
	row, err := s.row(ctx, c, fresh, &o.Run)
	if err != nil {
		return false, err
	}
	rows, err := c.InsertOccurrence(ctx, queries.InsertOccurrenceParams{
		ID: row.ID, CreatedAt: row.CreatedAt, DueAt: row.DueAt, ExpiresAt: row.ExpiresAt, Timeout: row.Timeout,
		Lane: row.Lane, MaxAttempts: row.MaxAttempts, OnCrash: row.OnCrash, Tags: row.Tags, Args: row.Args,
		Schedule: &rule.Name, Generation: &rule.Generation, Occurrence: &o.Key,
	})
	if err != nil || rows == 0 {
		return false, err
	}
	return true, c.InsertReady(ctx, queries.InsertReadyParams{Lane: row.Lane, DueAt: row.DueAt, RunID: row.ID})
}
