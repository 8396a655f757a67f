package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// ScheduleList lists schedules, by name, paused ones too.
type ScheduleList struct {
	Schedules []store.ScheduleRecord `json:"schedules"`
	Next      *string                `json:"next"` // the After of the next part; nil: this was the last one
}

// Preview is what happened to a schedule's last occurrences, and its next ones.
type Preview struct {
	Schedule store.ScheduleRecord `json:"-"`
	Next     []time.Time          `json:"next"`
	Past     []store.HistoryEntry `json:"past"`  // newest first
	Fault    *string              `json:"fault"` // why there are no next ones
}

// ScheduleState is the first thing to know of a schedule.
type ScheduleState string

// The states of schedules. More may come.
const (
	SchedulePaused   ScheduleState = "paused"
	ScheduleFaulty   ScheduleState = "faulty"   // it cannot be evaluated
	ScheduleWaiting  ScheduleState = "waiting"  // for an earlier run to end
	ScheduleOver     ScheduleState = "over"     // it never fires again
	ScheduleOrphaned ScheduleState = "orphaned" // it fires, and no worker declares it any more
	ScheduleActive   ScheduleState = "active"
)

// StateOf returns the state of a schedule at an instant.
func StateOf(r store.ScheduleRecord, now time.Time) ScheduleState {
	switch {
	case r.Paused:
		return SchedulePaused
	case r.Fault != nil:
		return ScheduleFaulty
	case r.Waiting:
		return ScheduleWaiting
	case over(r, now):
		return ScheduleOver
	case r.Orphaned:
		return ScheduleOrphaned
	default:
		return ScheduleActive
	}
}

// over reports whether a schedule that is not paused never fires again.
func over(r store.ScheduleRecord, now time.Time) bool {
	if r.NextAt != nil {
		return false
	}
	schedule := r.Schedule()
	next, err := schedule.Preview(now, 1)
	return err == nil && len(next) == 0
}

// Schedules lists schedules.
func (o *Operator) Schedules(ctx context.Context, part Part) (ScheduleList, error) {
	records, err := o.store.ListSchedules(ctx, part.Names...)
	var next *string
	if err == nil {
		records, next, err = cut(records, part, func(r *store.ScheduleRecord) place { return place{name: r.Name} })
	}
	if err == nil {
		err = o.showSchedules(ctx, records)
	}
	if err != nil {
		return ScheduleList{Schedules: []store.ScheduleRecord{}}, err
	}
	return ScheduleList{Schedules: records, Next: next}, nil
}

// Schedule returns one schedule, or ErrNotFound.
func (o *Operator) Schedule(ctx context.Context, name string) (store.ScheduleRecord, error) {
	records, err := o.store.ListSchedules(ctx, name)
	if err == nil && len(records) == 0 {
		err = fmt.Errorf("schedule %s: %w", name, store.ErrNotFound)
	}
	if err == nil {
		err = o.showSchedules(ctx, records)
	}
	if err != nil {
		return store.ScheduleRecord{}, err
	}
	return records[0], nil
}

// Preview returns up to next coming occurrences of a schedule, and up to past
// entries of each kind of its history. A paused schedule has no coming ones.
func (o *Operator) Preview(ctx context.Context, name string, next, past int) (Preview, error) {
	record, err := o.Schedule(ctx, name)
	if err != nil {
		return Preview{}, err
	}
	seen := Preview{Schedule: record, Next: []time.Time{}}
	history, err := o.store.ScheduleHistory(ctx, name, past)
	if err != nil {
		return Preview{}, err
	}
	seen.Past = whole(history)
	if record.Paused {
		return seen, nil
	}
	schedule := record.Schedule()
	coming, err := schedule.Preview(o.config.Now(), next)
	switch {
	case err == nil:
		seen.Next = whole(coming)
	case record.Fault != nil:
		seen.Fault = record.Fault
	default:
		text := err.Error()
		seen.Fault = &text
	}
	return seen, nil
}

// SaveSchedule stores a schedule and returns its next occurrence, or nil if it
// never fires. Generation 0 creates it: a schedule that would never fire is then
// refused with ErrInvalid, and a name that is taken with ErrConflict. Another
// generation replaces the schedule of that generation, which stays in force
// until the code's own declaration changes.
func (a *Actor) SaveSchedule(ctx context.Context, s store.Schedule) (*time.Time, error) {
	if err := store.CheckSchedule(s); err != nil {
		return nil, err
	}
	next, err := s.Preview(a.config.Now(), 1)
	if err != nil {
		return nil, err
	}
	if len(next) == 0 && s.Generation == 0 {
		return nil, fmt.Errorf("%w: schedule %s would never fire: its instant or its end has passed", store.ErrInvalid, s.Name)
	}
	if s.Args, err = a.keptArgs(ctx, &s); err != nil {
		return nil, err
	}
	defer a.hub.touch("schedules")
	if err := a.store.SaveSchedule(ctx, s, a.by); err != nil {
		if errors.Is(err, store.ErrConflict) && s.Generation == 0 {
			err = fmt.Errorf("a schedule of this name exists already: %w", err)
		}
		return nil, err
	}
	word := rules.Created
	if s.Generation > 0 {
		word = rules.Edited
	}
	a.note(kindSchedule, s.Name, word, "", 0)
	if len(next) == 0 {
		return nil, nil
	}
	return &next[0], nil
}

// keptArgs are the args to store with a schedule: of one that was read with masks and saved
// with them, those that it has.
func (a *Actor) keptArgs(ctx context.Context, s *store.Schedule) ([]byte, error) {
	hidden, err := a.redactions(ctx)
	if err != nil {
		return nil, err
	}
	rule := hidden.of(s.Job)
	if rule == nil || s.Generation == 0 {
		return rule.restored(s.Args, nil)
	}
	records, err := a.store.ListSchedules(ctx, s.Name)
	if err != nil || len(records) == 0 {
		return s.Args, err
	}
	return rule.restored(s.Args, records[0].Args)
}

// PauseSchedule stops a schedule from firing. Its runs continue.
func (a *Actor) PauseSchedule(ctx context.Context, name string) error {
	return a.changeSchedule(ctx, name, store.PauseSchedule)
}

// ResumeSchedule lets a schedule fire again, from now on.
func (a *Actor) ResumeSchedule(ctx context.Context, name string) error {
	return a.changeSchedule(ctx, name, store.ResumeSchedule)
}

func (a *Actor) changeSchedule(ctx context.Context, name string, action store.ScheduleAction) error {
	defer a.hub.touch("schedules")
	if err := a.store.ChangeSchedule(ctx, name, action, a.by); err != nil {
		return err
	}
	a.note(kindSchedule, name, string(action), "", 0)
	return nil
}

// Deleted names what was deleted.
type Deleted struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"`
}

// DeleteSchedule deletes a schedule. Its runs stay. A worker that declares it
// creates it again.
func (a *Actor) DeleteSchedule(ctx context.Context, name string) (Deleted, error) {
	err := a.changeSchedule(ctx, name, store.DeleteSchedule)
	return Deleted{Name: name, Deleted: err == nil}, err
}

// ScheduledRun names a run that a schedule made.
type ScheduledRun struct {
	Schedule string      `json:"schedule"`
	ID       store.RunID `json:"id"`
}

// RunSchedule creates a run of a schedule now; the schedule's own times stay.
// While as many runs of the schedule as it allows have not ended it is refused
// with ErrConflict, unless overlap is store.OverlapAllow.
func (a *Actor) RunSchedule(ctx context.Context, name string, overlap store.OverlapPolicy) (ScheduledRun, error) {
	made := ScheduledRun{Schedule: name, ID: store.NewRunID()}
	if err := a.store.RunSchedule(ctx, name, made.ID, overlap, a.by); err != nil {
		return made, err
	}
	a.note(kindSchedule, name, rules.RanNow(made.ID), "", 0)
	return made, nil
}
