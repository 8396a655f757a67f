package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// ListSchedules lists schedules by name.
func (s *Store) ListSchedules(ctx context.Context, names ...string) ([]store.ScheduleRecord, error) {
	if err := store.CheckScheduleNames(names...); err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", s.explain(err))
	}
	filter, err := json.Marshal(append([]string{}, names...))
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	rows, err := reader.ListSchedules(ctx, queries.ListSchedulesParams{Names: string(filter)})
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", s.explain(err))
	}
	now := s.clock.now()
	records := make([]store.ScheduleRecord, len(rows))
	for i := range rows {
		records[i] = scheduleRecord(&rows[i], now)
	}
	return records, nil
}

// scheduleRecord is a schedule as it is stored; of one that cannot be
// read, what can be, and why the rest cannot.
func scheduleRecord(row *queries.ListSchedulesRow, now int64) store.ScheduleRecord {
	tags, err := tagsOf(row.Tags)
	one := store.Schedule{
		Name: row.Name, Generation: row.Generation, Job: row.Job, Queue: row.Queue, Priority: int(row.Priority), Args: row.Args,
		MaxAttempts: int(row.MaxAttempts), Timeout: duration(row.Timeout), OnCrash: store.CrashPolicy(row.OnCrash), Tags: tags,
		Paused: row.Paused != 0, Waiting: duration(row.Waiting),
	}
	err = errors.Join(err, readSpec(&one, row.Spec))
	if row.NextAt != nil {
		one.NextAt = instant(*row.NextAt)
	}
	record := one.Record()
	record.PausedBy, record.Fault, record.Edited = rules.TextOrNil(row.PausedBy), rules.TextOrNil(row.Fault), row.Edited != 0
	if err != nil {
		record.Fault = rules.TextOrNil(err.Error())
	}
	record.DeclaredAt = instantOrNil(row.DeclaredAt)
	record.Orphaned = row.DeclaredAt != nil && now-*row.DeclaredAt > store.DeclaredWithin.Microseconds()
	return record
}

// ScheduleHistory says what happened to a schedule's occurrences, newest first.
func (s *Store) ScheduleHistory(ctx context.Context, name string, limit int) ([]store.HistoryEntry, error) {
	if err := store.CheckScheduleHistory(name, limit); err != nil {
		return nil, fmt.Errorf("schedule history: %w", err)
	}
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("schedule history: %w", s.explain(err))
	}
	if _, err := reader.FindSchedule(ctx, queries.FindScheduleParams{Name: name}); err != nil {
		return nil, fmt.Errorf("schedule %s: %w", name, s.missing(err))
	}
	past, err := reader.past(ctx, name, int64(max(limit, 0)))
	if err != nil {
		return nil, fmt.Errorf("schedule history: %w", s.explain(err))
	}
	store.SortHistory(past)
	return past, nil
}

// missing says that there is no such schedule when that is what is wrong.
func (s *Store) missing(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	return s.explain(err)
}

func (l *lookups) past(ctx context.Context, name string, most int64) ([]store.HistoryEntry, error) {
	past := []store.HistoryEntry{}
	addRun := func(id []byte, stored, due int64, occurrence string) {
		run, state := store.RunID(id), store.State(stored)
		past = append(past, store.HistoryEntry{Kind: store.HistoryRun, At: instant(due), Occurrence: rules.TextOrNil(occurrence), Run: &run, State: &state})
	}
	runs, err := l.PastOccurrences(ctx, queries.PastOccurrencesParams{Schedule: &name, Most: most})
	for _, row := range runs {
		addRun(row.ID, row.State, row.DueAt, row.Occurrence)
	}
	if err != nil {
		return nil, err
	}
	asked, err := l.PastRequests(ctx, queries.PastRequestsParams{Schedule: &name, Most: most})
	for _, row := range asked {
		addRun(row.ID, row.State, row.DueAt, "")
	}
	if err != nil {
		return nil, err
	}
	skips, err := l.PastSkips(ctx, queries.PastSkipsParams{Schedule: name, Most: most})
	for _, row := range skips {
		first := instant(row.FirstAt)
		past = append(past, store.HistoryEntry{Kind: store.HistorySkip, At: instant(row.LastAt), First: &first, Reason: rules.TextOrNil(row.Reason)})
	}
	if err != nil {
		return nil, err
	}
	changes, err := l.PastChanges(ctx, queries.PastChangesParams{Subject: name, Most: most})
	for _, row := range changes {
		past = append(past, store.HistoryEntry{Kind: store.HistoryChange, At: instant(row.At), Reason: rules.TextOrNil(row.Action), By: rules.TextOrNil(row.Actor)})
	}
	return past, err
}

// SaveSchedule stores an operator's schedule.
func (s *Store) SaveSchedule(ctx context.Context, edited store.Schedule, by string) error {
	if err := errors.Join(store.CheckSchedule(edited), store.CheckScheduleChange(edited.Name, by)); err != nil {
		return fmt.Errorf("save schedule: %w", err)
	}
	row, err := scheduleRow(&edited)
	if err != nil {
		return fmt.Errorf("save schedule: %w", err)
	}
	row.Edited = 1
	err = s.write(ctx, reclaims, func(ctx context.Context, c *change) error {
		known, err := c.FindSchedule(ctx, queries.FindScheduleParams{Name: edited.Name})
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		found := err == nil
		if known.Generation != edited.Generation {
			return store.ErrConflict
		}
		if !found {
			if err := c.createSchedule(ctx, row, edited.Paused); err != nil {
				return err
			}
			return c.note(ctx, edited.Name, rules.Created, by)
		}
		row.Hash, row.HashAt, row.BroughtAt = known.Hash, known.HashAt, known.BroughtAt
		if err := c.replaceSchedule(ctx, row, known.Spec); err != nil {
			return err
		}
		return c.note(ctx, edited.Name, rules.Edited, by)
	})
	if err != nil {
		return fmt.Errorf("save schedule %s: %w", edited.Name, err)
	}
	s.hint()
	return nil
}

// ChangeSchedule pauses, resumes or deletes a schedule.
func (s *Store) ChangeSchedule(ctx context.Context, name string, action store.ScheduleAction, by string) error {
	if err := store.CheckScheduleChange(name, by); err != nil {
		return fmt.Errorf("change schedule: %w", err)
	}
	err := s.write(ctx, reclaims, func(ctx context.Context, c *change) error {
		return s.changeSchedule(ctx, c, name, action, by)
	})
	if err != nil {
		return fmt.Errorf("schedule %s: %w", name, err)
	}
	s.hint()
	return nil
}

// RunSchedule stores a run of the schedule that is due now.
func (s *Store) RunSchedule(ctx context.Context, name string, id store.RunID, overlap store.OverlapPolicy, by string) error {
	if err := store.CheckScheduleRun(name, id, by); err != nil {
		return fmt.Errorf("run schedule: %w", err)
	}
	fresh := newLanes()
	err := s.write(ctx, reclaims, func(ctx context.Context, c *change) error {
		known, err := c.FindSchedule(ctx, queries.FindScheduleParams{Name: name})
		if err != nil {
			return s.missing(err)
		}
		if stored, err := c.storedFor(ctx, name, id); err != nil || stored {
			return err
		}
		tags, err := tagsOf(known.Tags)
		if err != nil {
			return err
		}
		asked := store.Schedule{Name: name, Job: known.Job, Queue: known.Queue, Priority: int(known.Priority), Args: known.Args, Tags: tags,
			MaxAttempts: int(known.MaxAttempts), Timeout: duration(known.Timeout), OnCrash: store.CrashPolicy(known.OnCrash)}
		if err := readSpec(&asked, known.Spec); err != nil && overlap != store.OverlapAllow {
			return err
		}
		unfinished, err := c.unfinishedRuns(ctx, &asked, overlap, known.Unfinished)
		if err != nil {
			return err
		}
		if overlap != store.OverlapAllow && asked.Plan.Full(len(unfinished.IDs)) {
			return rules.NoRoom()
		}
		run := asked.RunNow()
		run.ID = id
		if err := c.checkLimits(ctx, run); err != nil {
			return err
		}
		if _, err := s.insertScheduled(ctx, c, fresh, name, known.Generation, &store.Occurrence{Run: run}); err != nil {
			return err
		}
		unfinished.IDs = append(unfinished.IDs, id)
		if err := c.SetUnfinished(ctx, queries.SetUnfinishedParams{Unfinished: idBytes(unfinished.Keep(&asked.Plan)), Name: name}); err != nil {
			return err
		}
		return c.note(ctx, name, rules.RanNow(id), by)
	})
	if err != nil {
		return fmt.Errorf("schedule %s: %w", name, err)
	}
	s.lanes.add(fresh)
	s.hint()
	return nil
}

// storedFor reports whether a run of a schedule has the id. Another run that has it
// is a conflict.
func (c *change) storedFor(ctx context.Context, schedule string, id store.RunID) (bool, error) {
	if _, err := c.FindState(ctx, queries.FindStateParams{ID: id[:]}); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return false, err
	}
	of, err := c.ScheduleOf(ctx, queries.ScheduleOfParams{ID: id[:]})
	if errors.Is(err, sql.ErrNoRows) || err == nil && of.Name != schedule {
		return false, rules.NotOfSchedule(id)
	}
	return err == nil, err
}

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
