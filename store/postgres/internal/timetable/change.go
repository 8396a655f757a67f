package timetable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/enqueue"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// change changes one schedule for an operator, and records the action in the same transaction,
// unless that is empty. It may wait for a schedule that is locked, so it does not use the
// connections of workers.
func (t *Timetable) change(
	ctx context.Context, name, by string, do func(tx pgx.Tx, q *queries.Queries, one *queries.LockScheduleRow) (action string, err error),
) error {
	if err := store.CheckScheduleChange(name, by); err != nil {
		return fmt.Errorf("change schedule: %w", err)
	}
	if err := t.schema.Usable(ctx); err != nil {
		return t.db.Fail("change schedule", err)
	}
	try := func(most time.Duration) error {
		return t.numbers.WithLanes(ctx, t.db.General, nil, func(tx pgx.Tx) error {
			q := t.db.Queries(tx)
			lock, statement := conn.Limits(ctx, most)
			if err := q.Limits(ctx, queries.LimitsParams{LockTimeout: lock, StatementTimeout: statement}); err != nil {
				return err
			}
			row, err := q.LockSchedule(ctx, queries.LockScheduleParams{Name: name})
			found := &row
			if errors.Is(err, pgx.ErrNoRows) {
				found, err = nil, nil
			}
			if err != nil {
				return err
			}
			action, err := do(tx, q, found)
			if err != nil || action == "" {
				return err
			}
			return q.Audit(ctx, queries.AuditParams{Actor: by, Kind: rules.KindSchedule, Subject: name, Action: action})
		})
	}
	err := t.db.Briefly(ctx, conn.HeldLimit, conn.LockLimit, try)
	if conn.Code(err) == conn.NotNullViolation { // a lane's number was not what it stood for
		t.numbers.ForgetLanes()
		err = t.db.Briefly(ctx, conn.HeldLimit, conn.LockLimit, try)
	}
	if err != nil {
		return t.db.Fail("change schedule", err)
	}
	t.wake.Hint()
	return nil
}

// SaveSchedule stores an operator's schedule.
func (t *Timetable) SaveSchedule(ctx context.Context, edited store.Schedule, by string) error {
	if err := store.CheckSchedule(edited); err != nil {
		return fmt.Errorf("save schedule: %w", err)
	}
	p := scheduleParams(&edited)
	p.Edited = true
	set := lanesOf(&edited)
	return t.change(ctx, edited.Name, by, func(tx pgx.Tx, q *queries.Queries, one *queries.LockScheduleRow) (string, error) {
		var generation int64
		if one != nil {
			generation = one.Generation
		}
		if generation != edited.Generation {
			return "", fmt.Errorf("schedule %s: %w", edited.Name, store.ErrConflict)
		}
		if err := t.numbers.LanesIn(ctx, tx, set); err != nil {
			return "", err
		}
		if one == nil {
			made, err := q.CreateSchedule(ctx, p)
			if err == nil && made == 0 {
				err = fmt.Errorf("schedule %s: %w", edited.Name, store.ErrConflict)
			}
			return rules.Created, err
		}
		keep := rules.SameSpecTimes(&edited, []byte(one.Spec))
		return rules.Edited, q.EditSchedule(ctx, queries.EditScheduleParams{Edited: true, Keep: keep, Spec: p.Spec, Job: p.Job, Queue: p.Queue, Priority: p.Priority,
			MaxAttempts: p.MaxAttempts, Timeout: p.Timeout, OnCrash: p.OnCrash, Args: p.Args, Tags: p.Tags, Limits: p.Limits, ID: one.ID})
	})
}

// ChangeSchedule pauses, resumes or deletes a schedule.
func (t *Timetable) ChangeSchedule(ctx context.Context, name string, action store.ScheduleAction, by string) error {
	return t.change(ctx, name, by, func(_ pgx.Tx, q *queries.Queries, one *queries.LockScheduleRow) (string, error) {
		if one == nil {
			return "", fmt.Errorf("schedule %s: %w", name, store.ErrNotFound)
		}
		switch action {
		case store.PauseSchedule:
			if one.Paused {
				return "", nil
			}
			return string(action), q.PauseSchedule(ctx, queries.PauseScheduleParams{PausedBy: by, ID: one.ID})
		case store.ResumeSchedule:
			if !one.Paused {
				return "", nil
			}
			return string(action), q.ResumeSchedule(ctx, queries.ResumeScheduleParams{ID: one.ID})
		case store.DeleteSchedule:
			if err := q.DeleteSkips(ctx, queries.DeleteSkipsParams{Schedule: one.ID}); err != nil {
				return "", err
			}
			return string(action), q.DeleteSchedule(ctx, queries.DeleteScheduleParams{ID: one.ID})
		default:
			return "", rules.UnknownScheduleAction(action)
		}
	})
}

// RunSchedule stores a run of the schedule that is due now.
func (t *Timetable) RunSchedule(ctx context.Context, name string, id store.RunID, overlap store.OverlapPolicy, by string) error {
	if err := store.CheckScheduleRun(name, id, by); err != nil {
		return fmt.Errorf("run schedule: %w", err)
	}
	return t.change(ctx, name, by, func(tx pgx.Tx, _ *queries.Queries, one *queries.LockScheduleRow) (string, error) {
		if one == nil {
			return "", fmt.Errorf("schedule %s: %w", name, store.ErrNotFound)
		}
		of, err := t.db.Queries(tx).ScheduleOfRun(ctx, queries.ScheduleOfRunParams{ID: id})
		switch {
		case errors.Is(err, pgx.ErrNoRows):
		case err != nil:
			return "", err
		case of != one.ID:
			return "", fmt.Errorf("schedule %s: %w", name, rules.NotOfSchedule(id))
		default:
			return "", nil
		}
		asked := store.Schedule{Name: name, Job: one.Job, Queue: one.Queue, Priority: int(one.Priority), Args: []byte(one.Args),
			MaxAttempts: int(one.MaxAttempts), Timeout: conn.FromMicro(one.Timeout), OnCrash: store.CrashPolicy(one.OnCrash), Tags: one.Tags, Limits: numbers.UsesOf(one.Limits)}
		if err := asked.SetSpec([]byte(one.Spec)); err != nil && overlap != store.OverlapAllow {
			return "", err
		}
		known, err := t.unfinishedRuns(ctx, tx, one.Unfinished)
		if err != nil {
			return "", err
		}
		unfinished, err := t.unfinishedOf(ctx, tx, one.ID, one.Unfinished, known, &asked.Plan, overlap)
		if err != nil {
			return "", err
		}
		if overlap != store.OverlapAllow && asked.Plan.Full(len(unfinished.IDs)) {
			return "", fmt.Errorf("schedule %s: %w", name, rules.NoRoom())
		}
		run := asked.RunNow()
		run.ID = id
		runs := []store.NewRun{run}
		set := numbers.PlacesOf(runs)
		if err := t.numbers.PlacesIn(ctx, tx, set, runs); err != nil {
			return "", err
		}
		b := t.db.NewBatch()
		stored := 0
		each := func(rows pgx.Rows) error { return conn.ScanIDs(rows, func(uuid.UUID) { stored++ }) }
		if set.Limits != nil {
			enqueue.AddLimited(b, runs, set, func(int) enqueue.Occurrence {
				return enqueue.Occurrence{Schedule: one.ID, Generation: one.Generation, Name: &name}
			}, each)
		} else {
			b.Add(queries.MaterializeRuns, append(enqueue.ColumnsOf(runs, set).Parameters(), []int32{one.ID}, []int64{one.Generation}, []*string{nil}, []*string{nil}, []string{name})...).Query(each)
		}
		unfinished.IDs = append(unfinished.IDs, id)
		b.Add(queries.SetUnfinished, conn.IDArray(unfinished.Keep(&asked.Plan)), one.ID)
		if err = t.db.Send(ctx, tx, b); err == nil && stored == 0 { // a transaction has just stored another run of that id
			err = fmt.Errorf("schedule %s: %w", name, rules.NotOfSchedule(id))
		}
		return rules.RanNow(id), err
	})
}
