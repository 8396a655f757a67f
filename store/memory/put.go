package memory

import (
	"bytes"
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// PutSchedule creates a program's schedule, or replaces it.
func (s *Store) PutSchedule(ctx context.Context, put store.Schedule) error {
	if err := firstOf(ctx.Err(), store.CheckSchedule(put)); err != nil {
		return fmt.Errorf("put schedule: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.putSchedule(put)
}

// putSchedule needs the store's mutex.
func (s *Store) putSchedule(put store.Schedule) error {
	known, found := s.schedules[put.Name]
	switch {
	case !found:
		known = &schedule{}
		known.Paused = put.Paused
		s.schedules[put.Name] = known
	case known.Hash != "":
		return fmt.Errorf("put schedule %s: %w", put.Name, rules.OfWorkers())
	}
	put.Hash, put.Paused = "", known.Paused
	known.redefine(put, s.now())
	known.edited = false
	s.hint()
	return nil
}

// scheduling is what a transaction does to the schedules of one name.
type scheduling struct {
	known      *schedule // as the store had it
	generation int64
	exists     bool // as the transaction sees it
	do         []func() error
}

// scheduling returns what the transaction has done to a schedule so far. It needs the store's
// mutex.
func (t *Tx) scheduling(name string) *scheduling {
	if t.schedules == nil {
		t.schedules = map[string]*scheduling{}
	}
	if t.schedules[name] == nil {
		known, found := t.store.schedules[name]
		s := &scheduling{known: known, exists: found}
		if found {
			s.generation = known.Generation
		}
		t.schedules[name] = s
	}
	return t.schedules[name]
}

// PutSchedule keeps the schedule for Commit.
func (t *Tx) PutSchedule(ctx context.Context, put store.Schedule) error {
	if err := firstOf(t.usable(ctx), store.CheckSchedule(put)); err != nil {
		return fmt.Errorf("put schedule: %w", err)
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	s := t.scheduling(put.Name)
	if s.exists && s.known != nil && s.known.Hash != "" {
		return fmt.Errorf("put schedule %s: %w", put.Name, rules.OfWorkers())
	}
	put.Args = bytes.Clone(put.Args)
	s.exists = true
	s.do = append(s.do, func() error { return t.store.putSchedule(put) })
	return nil
}

// ChangeSchedule keeps the change for Commit.
func (t *Tx) ChangeSchedule(ctx context.Context, name string, action store.ScheduleAction, by string) error {
	if err := firstOf(t.usable(ctx), store.CheckScheduleChange(name, by)); err != nil {
		return fmt.Errorf("change schedule: %w", err)
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	s := t.scheduling(name)
	if !s.exists {
		return fmt.Errorf("schedule %s: %w", name, store.ErrNotFound)
	}
	switch action {
	case store.PauseSchedule, store.ResumeSchedule:
	case store.DeleteSchedule:
		s.exists = false
	default:
		return rules.UnknownScheduleAction(action)
	}
	s.do = append(s.do, func() error { return t.store.changeSchedule(name, action, by) })
	return nil
}

// checkSchedules refuses to commit when a schedule is no longer what the transaction has
// changed. It needs the store's mutex.
func (t *Tx) checkSchedules() error {
	for name, s := range t.schedules {
		if now := t.store.schedules[name]; now != s.known || now != nil && now.Generation != s.generation {
			return fmt.Errorf("commit: schedule %s has changed since: %w", name, store.ErrConflict)
		}
	}
	return nil
}

// changeSchedules does what was kept, which checkSchedules has let pass.
func (t *Tx) changeSchedules() error {
	for _, s := range t.schedules {
		for _, do := range s.do {
			if err := do(); err != nil {
				return fmt.Errorf("commit: %w", err)
			}
		}
	}
	return nil
}
