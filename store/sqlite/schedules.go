package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// Materialize evaluates due schedules. decide is called inside the write
// transaction and must not call the store.
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
	resting := s.resting.Resting(s.elapsed())
	done, quiet, err := s.nothingDue(ctx, resting)
	if err != nil {
		return store.MaterializeResult{}, fmt.Errorf("materialize: %w", err)
	}
	if quiet {
		return done, nil
	}
	m := materializing{store: s, resting: resting, decide: decide}
	err = s.writeAround(ctx, reclaims, func(ctx context.Context, c *change) error {
		m.change, m.done, m.fresh, m.taken, m.refused = c, store.MaterializeResult{Next: -1}, nil, 0, nil
		return m.all(ctx, max(limit, 0))
	})
	if err != nil {
		return store.MaterializeResult{}, fmt.Errorf("materialize: %w", err)
	}
	for _, fresh := range m.fresh {
		s.lanes.add(fresh)
	}
	if m.taken > 0 {
		s.resting.Took(s.elapsed())
	}
	if len(m.done.Runs) > 0 {
		s.hint()
	}
	return m.done, nil
}

// materializing is one Materialize under way.
type materializing struct {
	*change

	store   *Store
	resting []string // schedules that are left alone
	decide  func(time.Time, store.Schedule) store.Decision
	done    store.MaterializeResult
	fresh   []*lanes
	taken   int               // schedules whose decision is stored
	refused []refusedOnItsOwn // those whose decision was not
}

func (m *materializing) all(ctx context.Context, limit int) error {
	due, err := m.DueSchedules(ctx, queries.DueSchedulesParams{Now: &m.now, Most: int64(limit + len(m.resting))})
	if err != nil {
		return err
	}
	for i := range due {
		row := &due[i]
		if slices.Contains(m.resting, row.Name) {
			continue
		}
		if m.done.Due == limit {
			break
		}
		m.done.Due++
		err := m.around(ctx, func() error { return m.one(ctx, row, "") }, func(err error) {
			m.refused = append(m.refused, refusedOnItsOwn{row, err})
		})
		if err != nil {
			return err
		}
	}
	if err := m.judgeRefused(ctx); err != nil {
		return err
	}
	next, err := nextEvaluation(ctx, m.Queries, m.resting)
	if next >= 0 {
		m.done.Next = max(duration(next-m.now), 0)
	}
	return err
}

// one decides about one schedule and stores what was decided, or the fault for
// which that was refused.
func (m *materializing) one(ctx context.Context, row *queries.DueSchedulesRow, fault string) error {
	rule, unreadable := scheduleOf(row)
	if unreadable != nil && fault == "" {
		fault = unreadable.Error()
	}
	overlap := rule.OverlapPolicy()
	if fault != "" {
		overlap = store.OverlapAllow // nothing depends on how many there are
	}
	unfinished, err := m.unfinishedRuns(ctx, &rule, overlap, row.Unfinished)
	if err != nil {
		return err
	}
	rule.Unfinished = len(unfinished.IDs)
	decision := store.Decision{Fault: fault}
	if fault == "" {
		decision = m.decide(instant(m.now), rule)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // or what it had no time for would be a fault
	}
	fresh := newLanes()
	ids, err := m.store.advance(ctx, m.change, fresh, &rule, unfinished, &decision)
	if err != nil {
		return err
	}
	m.fresh, m.done.Runs = append(m.fresh, fresh), append(m.done.Runs, ids...)
	if decision.Fault == "" {
		m.taken++
	}
	if decision.Waiting > 0 && decision.Fault == "" {
		for _, id := range slices.Concat(unfinished.IDs, ids) {
			m.done.Waits = append(m.done.Waits, store.WaitingSchedule{Schedule: rule.Name, Run: id, Pause: decision.Waiting})
		}
	}
	return nil
}

// nextEvaluation is when the next schedule is due that does not rest; negative: none.
func nextEvaluation(ctx context.Context, q *queries.Queries, resting []string) (int64, error) {
	if len(resting) == 0 {
		return q.NextEvaluation(ctx)
	}
	evaluations, err := q.NextEvaluations(ctx, queries.NextEvaluationsParams{Most: int64(len(resting) + 1)})
	for i := range evaluations {
		if !slices.Contains(resting, evaluations[i].Name) {
			return *evaluations[i].LookAt, err
		}
	}
	return -1, err
}

// ReevaluateNow has schedules that wait evaluated now.
func (s *Store) ReevaluateNow(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	err := s.write(ctx, reclaims, func(ctx context.Context, c *change) error {
		for _, name := range names {
			if err := c.HastenSchedule(ctx, queries.HastenScheduleParams{Now: &c.now, Name: name}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reevaluate schedules: %w", err)
	}
	return nil
}

// nothingDue asks when the next schedule is due, without the write lock: mostly
// none is now.
func (s *Store) nothingDue(ctx context.Context, resting []string) (store.MaterializeResult, bool, error) {
	l, err := s.read(ctx)
	if err != nil {
		return store.MaterializeResult{}, false, s.explain(err)
	}
	next, err := nextEvaluation(ctx, l.Queries, resting)
	if err != nil {
		return store.MaterializeResult{}, false, s.explain(err)
	}
	if next < 0 {
		return store.MaterializeResult{Next: -1}, true, nil
	}
	in := duration(next - s.clock.now())
	return store.MaterializeResult{Next: in}, in > 0, nil
}

// scheduleOf reads a schedule. One that cannot be read is returned without what
// could not be, so that it can be recognised.
func scheduleOf(row *queries.DueSchedulesRow) (store.Schedule, error) {
	tags, err := tagsOf(row.Tags)
	if len(tags) == 0 {
		tags = nil
	}
	schedule := store.Schedule{
		Name:        row.Name,
		Hash:        row.Hash,
		Generation:  row.Generation,
		Job:         row.Job,
		Queue:       row.Queue,
		Priority:    int(row.Priority),
		Args:        row.Args,
		MaxAttempts: int(row.MaxAttempts),
		Timeout:     duration(row.Timeout),
		OnCrash:     store.CrashPolicy(row.OnCrash),
		Tags:        tags,
		Waiting:     duration(row.Waiting),
	}
	err = errors.Join(err, readSpec(&schedule, row.Spec))
	if (schedule.Waiting > 0 || row.NextAt == nil) && row.LookAt != nil {
		schedule.EvaluateAt = instant(*row.LookAt)
	}
	if row.NextAt != nil {
		schedule.NextAt = instant(*row.NextAt)
	}
	return schedule, err
}

// advance stores what was decided for one schedule and returns the new runs.
// Runs that may not be stored are a fault of this schedule and of no other, which decision
// then has.
func (s *Store) advance(
	ctx context.Context, c *change, fresh *lanes, rule *store.Schedule, unfinished store.Unfinished, decision *store.Decision,
) ([]store.RunID, error) {
	if decision.Fault == "" {
		runs := make([]store.NewRun, len(decision.Occurrences))
		for i, o := range decision.Occurrences {
			runs[i] = o.Run
		}
		err := store.CheckRuns(runs)
		if err == nil {
			err = c.checkLimits(ctx, runs...)
		}
		switch {
		case errors.Is(err, store.ErrInvalid):
			decision.Fault = err.Error()
		case err != nil:
			return nil, err
		}
	}
	if decision.Fault != "" {
		evaluateAt := c.now + rules.FaultPause.Microseconds()
		return nil, c.PostponeSchedule(ctx, queries.PostponeScheduleParams{LookAt: &evaluateAt, Fault: &decision.Fault, Name: rule.Name})
	}
	var ids []store.RunID
	for i := range decision.Occurrences {
		o := &decision.Occurrences[i]
		stored, err := s.insertScheduled(ctx, c, fresh, rule.Name, rule.Generation, o)
		if err != nil {
			return nil, err
		}
		if stored {
			ids = append(ids, o.Run.ID)
		}
	}
	for _, skip := range decision.Skips {
		err := c.InsertSkip(ctx, queries.InsertSkipParams{Schedule: rule.Name, FirstAt: skip.First.UnixMicro(), LastAt: skip.Last.UnixMicro(),
			Reason: string(skip.Reason)})
		if err != nil {
			return nil, err
		}
	}
	next := micros(decision.NextAt)
	evaluateAt := next
	if decision.Waiting > 0 {
		again := c.now + decision.Waiting.Microseconds()
		evaluateAt = &again
	}
	unfinished.IDs = append(unfinished.IDs, ids...)
	return ids, c.AdvanceSchedule(ctx, queries.AdvanceScheduleParams{NextAt: next, LookAt: evaluateAt, Waiting: decision.Waiting.Microseconds(),
		Unfinished: idBytes(unfinished.Keep(&rule.Plan)), Name: rule.Name})
}

// unfinishedRuns are the runs of a schedule that have not ended: those of the
// ones it remembers, 16 bytes each, or all if these do not report whether there is
// room for another.
func (c *change) unfinishedRuns(
	ctx context.Context, of *store.Schedule, overlap store.OverlapPolicy, remembered []byte,
) (store.Unfinished, error) {
	unfinished := store.ReadUnfinished(idsOf(remembered))
	ids := unfinished.IDs
	unfinished.IDs = nil
	for _, id := range ids {
		state, err := c.FindState(ctx, queries.FindStateParams{ID: id[:]})
		if errors.Is(err, sql.ErrNoRows) || err == nil && store.State(state).Terminal() {
			continue
		}
		if err != nil && overlap != store.OverlapAllow { // to which it does not matter, so that it stays remembered
			return unfinished, err
		}
		unfinished.IDs = append(unfinished.IDs, id)
	}
	if !unfinished.Unclear(&of.Plan, overlap) {
		return unfinished, nil
	}
	all, err := c.UnfinishedOfSchedule(ctx, queries.UnfinishedOfScheduleParams{Schedule: &of.Name, Most: store.MaxUnfinishedRuns})
	unfinished = store.Unfinished{Others: len(all) == store.MaxUnfinishedRuns}
	for _, id := range all {
		unfinished.IDs = append(unfinished.IDs, store.RunID(id))
	}
	slices.SortFunc(unfinished.IDs, func(a, b store.RunID) int { return bytes.Compare(a[:], b[:]) })
	return unfinished, err
}

func idsOf(all []byte) (ids []store.RunID) {
	for ; len(all) >= 16; all = all[16:] {
		ids = append(ids, store.RunID(all[:16]))
	}
	return ids
}

func idBytes(ids []store.RunID) []byte {
	all := []byte{}
	for _, id := range ids {
		all = append(all, id[:]...)
	}
	return all
}

// insertScheduled stores a run of a schedule, unless its occurrence is there; without
// a key it is one that an operator requested.
func (s *Store) insertScheduled(
	ctx context.Context, c *change, fresh *lanes, schedule string, generation int64, o *store.Occurrence,
) (stored bool, err error) {
	run := &o.Run
	row, err := s.row(ctx, c, fresh, run)
	if err != nil {
		return false, err
	}
	rows, err := c.InsertOccurrence(ctx, queries.InsertOccurrenceParams{
		ID: row.ID, CreatedAt: row.CreatedAt, DueAt: row.DueAt, ExpiresAt: row.ExpiresAt, Timeout: row.Timeout,
		Lane: row.Lane, MaxAttempts: row.MaxAttempts, OnCrash: row.OnCrash, Tags: row.Tags, Metadata: row.Metadata, Args: row.Args,
		Schedule: &schedule, Generation: &generation, Occurrence: rules.TextOrNil(o.Key),
		OccursAt: rules.TextOrNil(string(store.ZonedTimeOf(o.At))), Limits: limitsText(run.Limits),
	})
	if err != nil || rows == 0 {
		return false, err
	}
	return true, c.intoLine(ctx, row.Lane, row.DueAt, row.ID, limitsText(run.Limits))
}
