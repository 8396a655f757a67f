package timetable

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// scheduleParams is a schedule as its row is created.
func scheduleParams(s *store.Schedule) queries.CreateScheduleParams {
	return queries.CreateScheduleParams{
		Name: s.Name, Spec: string(s.Spec()), Job: s.Job, Queue: s.Queue, Priority: int16(s.Priority), //nolint:gosec // checked
		MaxAttempts: int32(s.MaxAttempts), Timeout: conn.Micro(s.Timeout), OnCrash: int16(s.OnCrash), //nolint:gosec // checked
		Args: string(s.Args), Tags: s.Tags, Limits: store.LimitTexts(s.Limits), Paused: s.Paused,
	}
}

// scheduling changes a schedule in a transaction, the store's own or a caller's.
type scheduling struct {
	db *conn.DB
	to conn.Sender
}

// hold locks the schedule of a name; nil: there is none.
func (s scheduling) hold(ctx context.Context, name string) (found *queries.HoldScheduleRow, err error) {
	b := s.db.NewBatch()
	b.Add(queries.HoldSchedule, name).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			found = &queries.HoldScheduleRow{}
			if err := rows.Scan(&found.ID, &found.Hash, &found.Paused, &found.Spec); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return found, s.db.Send(ctx, s.to, b)
}

// put creates the schedule or replaces it.
func (s scheduling) put(ctx context.Context, put *store.Schedule) error {
	p := scheduleParams(put)
	one, err := s.hold(ctx, put.Name)
	if err == nil && one == nil {
		var created bool
		if created, err = s.create(ctx, &p); created || err != nil {
			return err
		}
		one, err = s.hold(ctx, put.Name) // another transaction has created it meanwhile
	}
	switch {
	case err != nil:
		return err
	case one == nil: // that one is newer than the snapshot, or has deleted it
		return fmt.Errorf("%w: another transaction changes it: begin yours again", store.ErrConflict)
	case one.Hash != "":
		return rules.OfWorkers()
	}
	keep := rules.SameSpecTimes(put, []byte(one.Spec))
	b := s.db.NewBatch()
	b.Add(queries.EditSchedule, false, keep, p.Spec, p.Job, p.Queue, p.Priority, p.MaxAttempts, p.Timeout, p.OnCrash, p.Args, p.Tags, p.Limits, one.ID)
	return s.db.Send(ctx, s.to, b)
}

// create reports whether it has created the row.
func (s scheduling) create(ctx context.Context, p *queries.CreateScheduleParams) (created bool, err error) {
	b := s.db.NewBatch()
	b.Add(queries.CreateSchedule, p.Name, p.Spec, p.Job, p.Queue, p.Priority, p.MaxAttempts, p.Timeout, p.OnCrash, p.Args, p.Tags, p.Limits,
		p.Paused, p.Edited).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		created = rows.Next()
		return rows.Err()
	})
	return created, s.db.Send(ctx, s.to, b)
}

// change pauses, resumes or deletes the schedule of a name.
func (s scheduling) change(ctx context.Context, name string, action store.ScheduleAction, by string) error {
	one, err := s.hold(ctx, name)
	if err != nil {
		return err
	}
	if one == nil {
		return store.ErrNotFound
	}
	b := s.db.NewBatch()
	switch action {
	case store.PauseSchedule:
		if one.Paused {
			return nil
		}
		b.Add(queries.PauseSchedule, by, one.ID)
	case store.ResumeSchedule:
		if !one.Paused {
			return nil
		}
		b.Add(queries.ResumeSchedule, one.ID)
	case store.DeleteSchedule:
		b.Add(queries.DeleteSkips, one.ID)
		b.Add(queries.DeleteSchedule, one.ID)
	default:
		return rules.UnknownScheduleAction(action)
	}
	b.Add(queries.Audit, by, rules.KindSchedule, name, string(action))
	return s.db.Send(ctx, s.to, b)
}

// lanesOf are the lanes that the runs of a schedule need.
func lanesOf(s *store.Schedule) numbers.LaneSet {
	return numbers.LaneSet{numbers.Lane{Queue: s.Queue, Job: s.Job, Priority: int16(s.Priority)}: 0} //nolint:gosec // checked
}

// PutSchedule creates a program's schedule, or replaces it.
func (t *Timetable) PutSchedule(ctx context.Context, put store.Schedule) error {
	if err := store.CheckSchedule(put); err != nil {
		return fmt.Errorf("put schedule: %w", err)
	}
	if err := t.schema.Usable(ctx); err != nil {
		return t.db.Fail("put schedule", err)
	}
	set := lanesOf(&put)
	err := t.db.Briefly(ctx, conn.HeldLimit, conn.LockLimit, func(most time.Duration) error {
		return t.numbers.WithLanes(ctx, t.db.General, nil, func(tx pgx.Tx) error {
			lock, statement := conn.Limits(ctx, most)
			if err := t.db.Queries(tx).Limits(ctx, queries.LimitsParams{LockTimeout: lock, StatementTimeout: statement}); err != nil {
				return err
			}
			if err := t.numbers.LanesIn(ctx, tx, set); err != nil {
				return err
			}
			return scheduling{t.db, tx}.put(ctx, &put)
		})
	})
	if err != nil {
		return t.db.Fail("put schedule "+put.Name, err)
	}
	t.wake.Hint()
	return nil
}

// PutIn creates a program's schedule, or replaces it, in a transaction of the caller.
func (t *Timetable) PutIn(ctx context.Context, to conn.Sender, put *store.Schedule) error {
	if err := t.numbers.LaneIDs(ctx, lanesOf(put)); err != nil {
		return err
	}
	return scheduling{t.db, to}.put(ctx, put)
}

// ChangeIn pauses, resumes or deletes a schedule in a transaction of the caller.
func (t *Timetable) ChangeIn(ctx context.Context, to conn.Sender, name string, action store.ScheduleAction, by string) error {
	return scheduling{t.db, to}.change(ctx, name, action, by)
}
