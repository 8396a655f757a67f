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

// schedule is a stored rule.
type schedule struct {
	store.Schedule
	over  bool      // its rule never fires again
	retry time.Time // after a fault: not to be evaluated before
	fault string    // why the rule could not be evaluated the last time

	runs  []*run       // of the schedule, oldest first; the unfinished and the latest finished ones
	open  []*run       // of runs, all that have not ended, and ones that have ended since they were last counted
	skips []store.Skip // the latest, oldest first

	pausedBy   string
	edited     bool      // an operator's version is in force
	declaredAt time.Time // by a worker, whatever its hash
	hashAt     time.Time // the stored hash was last declared
	broughtAt  time.Time // the worker that brought the hash had started
}

// runsKept bounds the finished runs that are remembered of each schedule.
const runsKept = 1000

// occurrence identifies a due instant of a schedule.
type occurrence struct {
	schedule   string
	generation int64
	key        string
}

// lookAt is when the schedule is to be evaluated; the zero time is immediately.
func (one *schedule) lookAt() time.Time {
	switch {
	case one.fault != "":
		return one.retry
	case one.EvaluateAt.IsZero():
		return one.NextAt
	default:
		return one.EvaluateAt
	}
}

// asleep reports whether the schedule is not to be evaluated at all.
func (one *schedule) asleep() bool { return one.over || one.Paused }

// unfinished counts the runs that have not ended.
func (one *schedule) unfinished() int {
	one.open = slices.DeleteFunc(one.open, func(r *run) bool { return r.state.Terminal() })
	return len(one.open)
}

// waits are the runs for which the schedule waits.
func (one *schedule) waits() (waits []store.WaitingSchedule) {
	for _, r := range one.open {
		if one.Waiting > 0 && one.fault == "" && !r.state.Terminal() {
			waits = append(waits, store.WaitingSchedule{Schedule: one.Name, Run: r.id, Pause: one.Waiting})
		}
	}
	return waits
}

// ReevaluateNow has schedules that wait evaluated now.
func (s *Store) ReevaluateNow(ctx context.Context, names ...string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("reevaluate schedules: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, name := range names {
		if one, found := s.schedules[name]; found && one.Waiting > 0 && one.EvaluateAt.After(now) {
			one.EvaluateAt = now
		}
	}
	return nil
}

// remember adds a run and forgets finished ones that are too many.
func (one *schedule) remember(r *run) {
	one.runs, one.open = append(one.runs, r), append(one.open, r)
	if many := len(one.runs) - 2*runsKept; many > 0 {
		i := 0
		one.runs = slices.DeleteFunc(one.runs, func(r *run) bool { i++; return i <= runsKept && r.state.Terminal() })
	}
}

// Materialize evaluates due schedules. decide is called without the store's
// mutex; a schedule that is declared again meanwhile is left to the next call.
func (s *Store) Materialize(
	ctx context.Context, limit int, decide func(now time.Time, s store.Schedule) store.Decision,
) (store.MaterializeResult, error) {
	if err := ctx.Err(); err != nil {
		return store.MaterializeResult{}, fmt.Errorf("materialize: %w", err)
	}
	if !s.evaluating.TryLock() {
		return store.MaterializeResult{Busy: true}, nil
	}
	defer s.evaluating.Unlock()
	due, now := s.dueSchedules(limit)
	decisions := make([]store.Decision, len(due))
	for i := range due {
		decisions[i] = decide(now, copySchedule(due[i]))
	}
	if ctx.Err() != nil { // or what it had no time for would be a fault
		return store.MaterializeResult{}, fmt.Errorf("materialize: %w", context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	done := store.MaterializeResult{Due: len(due)}
	for i := range due {
		stored, found := s.schedules[due[i].Name]
		if found && stored.unchanged(&due[i]) {
			done.Runs = append(done.Runs, s.advance(stored, &decisions[i], now)...)
			done.Waits = append(done.Waits, stored.waits()...)
		}
	}
	if len(done.Runs) > 0 {
		s.hint()
	}
	done.Next = s.untilNext(s.now())
	return done, nil
}

// unchanged reports whether what was decided about a copy of the schedule still
// holds. One that was paused and resumed is planned afresh.
func (one *schedule) unchanged(copied *store.Schedule) bool {
	return one.Generation == copied.Generation && !one.Paused && one.NextAt.Equal(copied.NextAt) && one.unfinished() <= copied.Unfinished
}

// dueSchedules copies the schedules to be evaluated, the longest due first.
func (s *Store) dueSchedules(limit int) ([]store.Schedule, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var due []*schedule
	for _, one := range s.schedules {
		if !one.asleep() && !one.lookAt().After(now) {
			due = append(due, one)
		}
	}
	slices.SortFunc(due, func(a, b *schedule) int {
		if c := a.lookAt().Compare(b.lookAt()); c != 0 {
			return c
		}
		return cmp.Compare(a.Name, b.Name)
	})
	due = due[:min(len(due), max(limit, 0))]
	copies := make([]store.Schedule, len(due))
	for i, one := range due {
		copies[i] = copySchedule(one.Schedule)
		copies[i].Unfinished = one.unfinished()
	}
	return copies, now
}

// advance stores what was decided for one schedule and returns the new runs.
// Runs that may not be stored are a fault of this schedule and of no other.
func (s *Store) advance(one *schedule, decision *store.Decision, now time.Time) []store.RunID {
	one.fault = decision.Fault
	if one.fault == "" {
		runs := make([]store.NewRun, len(decision.Occurrences))
		for i, o := range decision.Occurrences {
			runs[i] = o.Run
		}
		if err := firstOf(store.CheckRuns(runs), s.checkLimits(runs)); err != nil {
			one.fault = err.Error()
		}
	}
	if one.fault != "" {
		if one.retry = now.Add(rules.FaultPause); one.Waiting > 0 {
			one.EvaluateAt = one.retry
		}
		return nil
	}
	var ids []store.RunID
	for i := range decision.Occurrences {
		o := &decision.Occurrences[i]
		identity := occurrence{one.Name, one.Generation, o.Key}
		if _, stored := s.occurrences[identity]; stored {
			continue
		}
		s.occurrences[identity] = o.Run.ID
		if s.insert(&o.Run, one.Name, now) {
			r := s.runs[o.Run.ID]
			r.generation, r.occurrence, r.occursAt = one.Generation, o.Key, store.ZonedTimeOf(o.At)
			one.remember(r)
			ids = append(ids, o.Run.ID)
		}
	}
	one.skip(decision.Skips...)
	one.NextAt, one.EvaluateAt, one.Waiting = micro(decision.NextAt), time.Time{}, decision.Waiting
	if one.Waiting > 0 {
		one.EvaluateAt = now.Add(one.Waiting)
	}
	one.over = decision.NextAt.IsZero()
	return ids
}

func (one *schedule) skip(skips ...store.Skip) {
	one.skips = append(one.skips, skips...)
	one.skips = one.skips[max(len(one.skips)-rules.SkipsKept, 0):]
}

// passOver records what is due of a schedule that is about to be changed.
func (one *schedule) passOver(now time.Time) {
	if !one.Paused && !one.NextAt.IsZero() && !one.NextAt.After(now) {
		one.skip(store.Skip{Reason: store.SkipChanged, First: one.NextAt, Last: now})
	}
}

// untilNext is the time until a schedule is to be evaluated.
func (s *Store) untilNext(now time.Time) time.Duration {
	next := time.Duration(-1)
	for _, one := range s.schedules {
		if one.asleep() {
			continue
		}
		in := max(one.lookAt().Sub(now), 0)
		if next < 0 || in < next {
			next = in
		}
	}
	return next
}
