package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// Materialize asks when the next schedule is due, without a transaction, and when one is
// evaluates those that are, under an advisory lock that ends with the transaction.
func (s *Store) Materialize(ctx context.Context, limit int, decide func(now time.Time, s store.Schedule) store.Decision) (store.MaterializeResult, error) {
	return s.timetable.Materialize(ctx, limit, decide)
}

// ReevaluateNow has schedules that wait evaluated now.
func (s *Store) ReevaluateNow(ctx context.Context, names ...string) error {
	return s.timetable.ReevaluateNow(ctx, names...)
}

// SaveSchedule stores an operator's schedule.
func (s *Store) SaveSchedule(ctx context.Context, edited store.Schedule, by string) error {
	return s.timetable.SaveSchedule(ctx, edited, by)
}

// ChangeSchedule pauses, resumes or deletes a schedule.
func (s *Store) ChangeSchedule(ctx context.Context, name string, action store.ScheduleAction, by string) error {
	return s.timetable.ChangeSchedule(ctx, name, action, by)
}

// RunSchedule stores a run of the schedule that is due now.
func (s *Store) RunSchedule(ctx context.Context, name string, id store.RunID, overlap store.OverlapPolicy, by string) error {
	return s.timetable.RunSchedule(ctx, name, id, overlap, by)
}

// PutSchedule creates a program's schedule, or replaces it.
func (s *Store) PutSchedule(ctx context.Context, put store.Schedule) error {
	return s.timetable.PutSchedule(ctx, put)
}

// PutSchedule creates a program's schedule, or replaces it, within the transaction; see
// store.Tx.
func (t *Tx) PutSchedule(ctx context.Context, put store.Schedule) error {
	if err := store.CheckSchedule(put); err != nil {
		return fmt.Errorf("put schedule: %w", err)
	}
	if err := t.store.schema.Usable(ctx); err != nil {
		return t.store.db.Fail("put schedule", err)
	}
	if err := t.store.timetable.PutIn(ctx, t.binding, &put); err != nil {
		return t.fail("put schedule "+put.Name, err)
	}
	return nil
}

// ChangeSchedule pauses, resumes or deletes a schedule within the transaction; see store.Tx.
func (t *Tx) ChangeSchedule(ctx context.Context, name string, action store.ScheduleAction, by string) error {
	if err := store.CheckScheduleChange(name, by); err != nil {
		return fmt.Errorf("change schedule: %w", err)
	}
	if err := t.store.schema.Usable(ctx); err != nil {
		return t.store.db.Fail("change schedule", err)
	}
	if err := t.store.timetable.ChangeIn(ctx, t.binding, name, action, by); err != nil {
		return t.fail("schedule "+name, err)
	}
	return nil
}
