package postgres

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
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// ListSchedules lists schedules by name.
func (s *Store) ListSchedules(ctx context.Context, names ...string) ([]store.ScheduleRecord, error) {
	if err := store.CheckScheduleNames(names...); err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("list schedules", err)
	}
	rows, err := s.db.Queries(s.db.Reading).ListSchedules(ctx, queries.ListSchedulesParams{Within: conn.Micro(store.DeclaredWithin), Names: conn.OrEmpty(names)})
	if err != nil {
		return nil, s.db.Fail("list schedules", err)
	}
	records := make([]store.ScheduleRecord, len(rows))
	for i := range rows {
		row := &rows[i]
		one := store.Schedule{
			Name: row.Name, Generation: row.Generation, Job: row.Job, Queue: row.Queue, Priority: int(row.Priority), Args: []byte(row.Args),
			MaxAttempts: int(row.MaxAttempts), Timeout: conn.FromMicro(row.Timeout), OnCrash: store.CrashPolicy(row.OnCrash), Tags: row.Tags, Limits: limitsOf(row.Limits),
			Paused: row.Paused, Waiting: conn.FromMicro(row.Waiting),
		}
		unreadable := one.SetSpec([]byte(row.Spec))
		if row.NextAt != nil {
			one.NextAt = row.NextAt.UTC()
		}
		records[i] = one.Record()
		records[i].PausedBy, records[i].Fault = rules.TextOrNil(row.PausedBy), rules.TextOrNil(row.Fault)
		if unreadable != nil {
			records[i].Fault = rules.TextOrNil(unreadable.Error())
		}
		records[i].Edited, records[i].DeclaredAt, records[i].Orphaned = row.Edited, conn.TimesUTC(row.DeclaredAt), row.Orphaned
	}
	return records, nil
}

// ScheduleHistory says what happened to a schedule's occurrences, newest first.
func (s *Store) ScheduleHistory(ctx context.Context, name string, limit int) ([]store.HistoryEntry, error) {
	if err := store.CheckScheduleHistory(name, limit); err != nil {
		return nil, fmt.Errorf("schedule history: %w", err)
	}
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("schedule history", err)
	}
	q := s.db.Queries(s.db.Reading)
	id, err := q.FindSchedule(ctx, queries.FindScheduleParams{Name: name})
	if err != nil {
		return nil, scheduleFault(name, s.db.Fail("schedule history", err))
	}
	past := []store.HistoryEntry{}
	b := s.db.Guarded(ctx)
	for _, list := range []string{queries.PastOccurrences, queries.PastRequests} {
		b.Add(list, id, conn.Small(limit)).Query(func(rows pgx.Rows) error { return scanPastRuns(rows, &past) })
	}
	b.Add(queries.PastSkips, id, conn.Small(limit)).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.PastSkipsRow])
		for _, row := range found {
			past = append(past, store.HistoryEntry{Kind: store.HistorySkip, At: row.LastAt.UTC(), First: conn.TimesUTC(&row.FirstAt), Reason: &row.Reason})
		}
		return err
	})
	b.Add(queries.PastChanges, rules.KindSchedule, name, conn.Small(limit)).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.PastChangesRow])
		for _, row := range found {
			past = append(past, store.HistoryEntry{Kind: store.HistoryChange, At: row.At.UTC(), Reason: &row.Action, By: &row.Actor})
		}
		return err
	})
	if err := s.db.Send(ctx, s.db.Reading, b); err != nil {
		return nil, s.db.Fail("schedule history", err)
	}
	store.SortHistory(past)
	return past, nil
}

func scanPastRuns(rows pgx.Rows, past *[]store.HistoryEntry) error {
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.PastOccurrencesRow])
	for _, row := range found {
		state := store.State(row.State)
		*past = append(*past, store.HistoryEntry{Kind: store.HistoryRun, At: row.DueAt.UTC(), Occurrence: rules.TextOrNil(row.Occurrence), Run: &row.ID, State: &state})
	}
	return err
}

// scheduleFault says that there is no such schedule when that is what is wrong.
func scheduleFault(name string, err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("schedule %s: %w", name, store.ErrNotFound)
	}
	return err
}

// change does an operator's work on one schedule, in a transaction that notes
// it. An action of "" is nothing to note. It may wait for a schedule that is
// locked, so it keeps away from the connections of workers.
func (s *Store) change(
	ctx context.Context, name, by string, do func(tx pgx.Tx, q *queries.Queries, one *queries.LockScheduleRow) (action string, err error),
) error {
	if err := store.CheckScheduleChange(name, by); err != nil {
		return fmt.Errorf("change schedule: %w", err)
	}
	if err := s.schema.Usable(ctx); err != nil {
		return s.db.Fail("change schedule", err)
	}
	try := func(most time.Duration) error {
		return s.withLanes(ctx, s.db.General, nil, func(tx pgx.Tx) error {
			q := s.db.Queries(tx)
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
	err := s.db.Briefly(ctx, conn.HeldLimit, conn.LockLimit, try)
	if conn.Code(err) == conn.NotNullViolation { // a lane's number was not what it stood for
		s.forgetLanes()
		err = s.db.Briefly(ctx, conn.HeldLimit, conn.LockLimit, try)
	}
	if err != nil {
		return s.db.Fail("change schedule", err)
	}
	s.wake.Hint()
	return nil
}

// SaveSchedule stores an operator's schedule.
func (s *Store) SaveSchedule(ctx context.Context, edited store.Schedule, by string) error {
	if err := store.CheckSchedule(edited); err != nil {
		return fmt.Errorf("save schedule: %w", err)
	}
	p := scheduleParams(&edited)
	p.Edited = true
	set := laneSet{lane{p.Queue, p.Job, p.Priority}: 0}
	return s.change(ctx, edited.Name, by, func(tx pgx.Tx, q *queries.Queries, one *queries.LockScheduleRow) (string, error) {
		var generation int64
		if one != nil {
			generation = one.Generation
		}
		if generation != edited.Generation {
			return "", fmt.Errorf("schedule %s: %w", edited.Name, store.ErrConflict)
		}
		if err := s.lanesIn(ctx, tx, set); err != nil {
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
func (s *Store) ChangeSchedule(ctx context.Context, name string, action store.ScheduleAction, by string) error {
	return s.change(ctx, name, by, func(_ pgx.Tx, q *queries.Queries, one *queries.LockScheduleRow) (string, error) {
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
func (s *Store) RunSchedule(ctx context.Context, name string, id store.RunID, overlap store.OverlapPolicy, by string) error {
	if err := store.CheckScheduleRun(name, id, by); err != nil {
		return fmt.Errorf("run schedule: %w", err)
	}
	return s.change(ctx, name, by, func(tx pgx.Tx, _ *queries.Queries, one *queries.LockScheduleRow) (string, error) {
		if one == nil {
			return "", fmt.Errorf("schedule %s: %w", name, store.ErrNotFound)
		}
		of, err := s.db.Queries(tx).ScheduleOfRun(ctx, queries.ScheduleOfRunParams{ID: id})
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
			MaxAttempts: int(one.MaxAttempts), Timeout: conn.FromMicro(one.Timeout), OnCrash: store.CrashPolicy(one.OnCrash), Tags: one.Tags, Limits: limitsOf(one.Limits)}
		if err := asked.SetSpec([]byte(one.Spec)); err != nil && overlap != store.OverlapAllow {
			return "", err
		}
		known, err := s.unfinishedRuns(ctx, tx, one.Unfinished)
		if err != nil {
			return "", err
		}
		unfinished, err := s.unfinishedOf(ctx, tx, one.ID, one.Unfinished, known, &asked.Plan, overlap)
		if err != nil {
			return "", err
		}
		if overlap != store.OverlapAllow && asked.Plan.Full(len(unfinished.IDs)) {
			return "", fmt.Errorf("schedule %s: %w", name, rules.NoRoom())
		}
		run := asked.RunNow()
		run.ID = id
		runs := []store.NewRun{run}
		set := placesOf(runs)
		if err := s.placesIn(ctx, tx, set, runs); err != nil {
			return "", err
		}
		b := s.db.NewBatch()
		stored := 0
		each := func(rows pgx.Rows) error { return conn.ScanIDs(rows, func(uuid.UUID) { stored++ }) }
		if set.limits != nil {
			addLimited(b, runs, set, func(int) occurrence { return occurrence{schedule: one.ID, generation: one.Generation, name: &name} }, each)
		} else {
			b.Add(queries.MaterializeRuns, append(columnsOf(runs, set).parameters(), []int32{one.ID}, []int64{one.Generation}, []*string{nil}, []*string{nil}, []string{name})...).Query(each)
		}
		unfinished.IDs = append(unfinished.IDs, id)
		b.Add(queries.SetUnfinished, idArray(unfinished.Keep(&asked.Plan)), one.ID)
		if err = s.db.Send(ctx, tx, b); err == nil && stored == 0 { // a transaction has just stored another run of that id
			err = fmt.Errorf("schedule %s: %w", name, rules.NotOfSchedule(id))
		}
		return rules.RanNow(id), err
	})
}
