package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// ListSchedules lists schedules by name.
func (s *Store) ListSchedules(ctx context.Context, names ...string) ([]store.ScheduleRecord, error) {
	if err := firstOf(ctx.Err(), store.CheckScheduleNames(names...)); err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, records := s.now(), []store.ScheduleRecord{}
	for name, one := range s.schedules {
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		copied := copySchedule(one.Schedule)
		record := copied.Record()
		record.PausedBy, record.Fault = rules.TextOrNil(one.pausedBy), rules.TextOrNil(one.fault)
		record.Edited, record.DeclaredAt = one.edited, timeOrNil(one.declaredAt)
		record.Orphaned = record.DeclaredAt != nil && now.Sub(one.declaredAt) > store.DeclaredWithin
		records = append(records, record)
	}
	slices.SortFunc(records, func(a, b store.ScheduleRecord) int { return cmp.Compare(a.Name, b.Name) })
	return records, nil
}

// ScheduleHistory says what happened to a schedule's occurrences, newest first.
func (s *Store) ScheduleHistory(ctx context.Context, name string, limit int) ([]store.HistoryEntry, error) {
	if err := firstOf(ctx.Err(), store.CheckScheduleHistory(name, limit)); err != nil {
		return nil, fmt.Errorf("schedule history: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, found := s.schedules[name]
	if !found {
		return nil, fmt.Errorf("schedule %s: %w", name, store.ErrNotFound)
	}
	past := []store.HistoryEntry{}
	for _, r := range one.runs[max(len(one.runs)-limit, 0):] {
		id, state := r.id, r.state
		past = append(past, store.HistoryEntry{Kind: store.HistoryRun, At: r.dueAt, Occurrence: rules.TextOrNil(r.occurrence), Run: &id, State: &state})
	}
	for _, skip := range one.skips[max(len(one.skips)-limit, 0):] {
		reason := string(skip.Reason)
		past = append(past, store.HistoryEntry{Kind: store.HistorySkip, At: skip.Last, First: timeOrNil(skip.First), Reason: &reason})
	}
	changes := 0
	for _, c := range slices.Backward(s.audit) {
		if c.kind == rules.KindSchedule && c.subject == name && changes < limit {
			past = append(past, store.HistoryEntry{Kind: store.HistoryChange, At: c.at, Reason: rules.TextOrNil(c.what), By: rules.TextOrNil(c.by)})
			changes++
		}
	}
	store.SortHistory(past)
	return past, nil
}

// SaveSchedule stores an operator's schedule.
func (s *Store) SaveSchedule(ctx context.Context, edited store.Schedule, by string) error {
	if err := firstOf(ctx.Err(), store.CheckSchedule(edited), store.CheckScheduleChange(edited.Name, by)); err != nil {
		return fmt.Errorf("save schedule: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, found := s.schedules[edited.Name]
	if found != (edited.Generation > 0) || found && known.Generation != edited.Generation {
		return fmt.Errorf("save schedule %s: %w", edited.Name, store.ErrConflict)
	}
	what := rules.Edited
	if !found {
		what, known = rules.Created, &schedule{}
		known.Paused = edited.Paused
		s.schedules[edited.Name] = known
	}
	edited.Hash, edited.Paused = known.Hash, known.Paused
	known.redefine(edited, s.now())
	known.edited = true
	s.noteSchedule(s.now(), edited.Name, what, by)
	s.hint()
	return nil
}

// ChangeSchedule pauses, resumes or deletes a schedule.
func (s *Store) ChangeSchedule(ctx context.Context, name string, action store.ScheduleAction, by string) error {
	if err := firstOf(ctx.Err(), store.CheckScheduleChange(name, by)); err != nil {
		return fmt.Errorf("change schedule: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changeSchedule(name, action, by)
}

// changeSchedule is ChangeSchedule for who holds the store's mutex.
func (s *Store) changeSchedule(name string, action store.ScheduleAction, by string) error {
	one, found := s.schedules[name]
	if !found {
		return fmt.Errorf("schedule %s: %w", name, store.ErrNotFound)
	}
	switch action {
	case store.PauseSchedule:
		if one.Paused {
			return nil
		}
		one.passOver(s.now())
		one.Paused, one.pausedBy = true, by
	case store.ResumeSchedule:
		if !one.Paused {
			return nil
		}
		s.resume(one)
	case store.DeleteSchedule:
		delete(s.schedules, name)
		s.forgetOccurrences(name)
	default:
		return rules.UnknownScheduleAction(action)
	}
	s.noteSchedule(s.now(), name, string(action), by)
	return nil
}

// resume plans a schedule from now on.
func (s *Store) resume(one *schedule) {
	one.Paused, one.pausedBy = false, ""
	one.NextAt, one.EvaluateAt, one.Waiting, one.over, one.fault = time.Time{}, s.now(), 0, false, ""
	s.hint()
}

// forgetOccurrences lets a schedule of the same name begin again.
func (s *Store) forgetOccurrences(name string) {
	for identity := range s.occurrences {
		if identity.schedule == name {
			delete(s.occurrences, identity)
		}
	}
}

// RunSchedule stores a run of the schedule that is due now.
func (s *Store) RunSchedule(ctx context.Context, name string, id store.RunID, overlap store.OverlapPolicy, by string) error {
	if err := firstOf(ctx.Err(), store.CheckScheduleRun(name, id, by)); err != nil {
		return fmt.Errorf("run schedule: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, found := s.schedules[name]
	if !found {
		return fmt.Errorf("schedule %s: %w", name, store.ErrNotFound)
	}
	if stored, taken := s.runs[id]; taken {
		if stored.schedule == name {
			return nil
		}
		return fmt.Errorf("schedule %s: %w", name, rules.NotOfSchedule(id))
	}
	if overlap != store.OverlapAllow && one.Plan.Full(one.unfinished()) {
		return fmt.Errorf("schedule %s: %w", name, rules.NoRoom())
	}
	run := one.RunNow()
	run.ID = id
	if err := s.checkLimits([]store.NewRun{run}); err != nil {
		return fmt.Errorf("schedule %s: %w", name, err)
	}
	now := s.now()
	s.insert(&run, name, now)
	one.remember(s.runs[run.ID])
	s.noteSchedule(now, name, rules.RanNow(run.ID), by)
	s.hint()
	return nil
}
