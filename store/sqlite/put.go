package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// PutSchedule creates a program's schedule, or replaces it.
func (s *Store) PutSchedule(ctx context.Context, put store.Schedule) error {
	row, err := putRow(&put)
	if err == nil {
		err = s.write(ctx, reclaims, func(ctx context.Context, c *change) error { return c.putSchedule(ctx, row, put.Paused) })
	}
	if err != nil {
		return fmt.Errorf("put schedule %s: %w", put.Name, err)
	}
	s.hint()
	return nil
}

// PutSchedule creates a program's schedule, or replaces it, within the transaction; see
// durable.Tx.
func (t *Tx) PutSchedule(ctx context.Context, put store.Schedule) error {
	row, err := putRow(&put)
	if err == nil {
		err = t.within(ctx, func(ctx context.Context, c *change) error { return c.putSchedule(ctx, row, put.Paused) })
	}
	if err != nil {
		return fmt.Errorf("put schedule %s: %w", put.Name, err)
	}
	return nil
}

// ChangeSchedule pauses, resumes or deletes a schedule within the transaction; see durable.Tx.
func (t *Tx) ChangeSchedule(ctx context.Context, name string, action store.ScheduleAction, by string) error {
	if err := store.CheckScheduleChange(name, by); err != nil {
		return fmt.Errorf("change schedule: %w", err)
	}
	err := t.within(ctx, func(ctx context.Context, c *change) error { return t.store.changeSchedule(ctx, c, name, action, by) })
	if err != nil {
		return fmt.Errorf("schedule %s: %w", name, err)
	}
	return nil
}

// putRow is the row of a program's schedule.
func putRow(put *store.Schedule) (queries.InsertScheduleParams, error) {
	if err := store.CheckSchedule(*put); err != nil {
		return queries.InsertScheduleParams{}, err
	}
	own := *put
	own.Hash = ""
	return scheduleRow(&own)
}

func (c *change) putSchedule(ctx context.Context, row queries.InsertScheduleParams, paused bool) error {
	known, err := c.FindSchedule(ctx, queries.FindScheduleParams{Name: row.Name})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return c.createSchedule(ctx, row, paused)
	case err != nil:
		return err
	case known.Hash != "":
		return rules.OfWorkers()
	}
	row.HashAt, row.BroughtAt = known.HashAt, known.BroughtAt
	return c.replaceSchedule(ctx, row, known.Spec)
}

// changeSchedule pauses, resumes or deletes a schedule, and records who did.
func (s *Store) changeSchedule(ctx context.Context, c *change, name string, action store.ScheduleAction, by string) error {
	known, err := c.FindSchedule(ctx, queries.FindScheduleParams{Name: name})
	if err != nil {
		return s.missing(err)
	}
	switch action {
	case store.PauseSchedule:
		if known.Paused != 0 {
			return nil
		}
		err = c.pauseSchedule(ctx, name, by)
	case store.ResumeSchedule:
		if known.Paused == 0 {
			return nil
		}
		err = c.ResumeSchedule(ctx, queries.ResumeScheduleParams{Now: &c.now, Name: name})
	case store.DeleteSchedule:
		if err = c.DeleteSkips(ctx, queries.DeleteSkipsParams{Schedule: name}); err == nil {
			err = c.DeleteSchedule(ctx, queries.DeleteScheduleParams{Name: name})
		}
	default:
		err = rules.UnknownScheduleAction(action)
	}
	if err != nil {
		return err
	}
	return c.note(ctx, name, string(action), by)
}
