package reading

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// ListSchedules lists schedules by name.
func (r *Reader) ListSchedules(ctx context.Context, names ...string) ([]store.ScheduleRecord, error) {
	if err := store.CheckScheduleNames(names...); err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	if err := r.schema.Usable(ctx); err != nil {
		return nil, r.db.Fail("list schedules", err)
	}
	rows, err := r.db.Queries(r.db.Reading).ListSchedules(ctx, queries.ListSchedulesParams{Within: conn.Micro(store.DeclaredWithin), Names: conn.OrEmpty(names)})
	if err != nil {
		return nil, r.db.Fail("list schedules", err)
	}
	records := make([]store.ScheduleRecord, len(rows))
	for i := range rows {
		row := &rows[i]
		one := store.Schedule{
			Name: row.Name, Generation: row.Generation, Job: row.Job, Queue: row.Queue, Priority: int(row.Priority), Args: []byte(row.Args),
			MaxAttempts: int(row.MaxAttempts), Timeout: conn.FromMicro(row.Timeout), OnCrash: store.CrashPolicy(row.OnCrash), Tags: row.Tags, Limits: numbers.UsesOf(row.Limits),
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
func (r *Reader) ScheduleHistory(ctx context.Context, name string, limit int) ([]store.HistoryEntry, error) {
	if err := store.CheckScheduleHistory(name, limit); err != nil {
		return nil, fmt.Errorf("schedule history: %w", err)
	}
	if err := r.schema.Usable(ctx); err != nil {
		return nil, r.db.Fail("schedule history", err)
	}
	q := r.db.Queries(r.db.Reading)
	id, err := q.FindSchedule(ctx, queries.FindScheduleParams{Name: name})
	if err != nil {
		return nil, scheduleFault(name, r.db.Fail("schedule history", err))
	}
	past := []store.HistoryEntry{}
	b := r.db.Guarded(ctx)
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
	if err := r.db.Send(ctx, r.db.Reading, b); err != nil {
		return nil, r.db.Fail("schedule history", err)
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
