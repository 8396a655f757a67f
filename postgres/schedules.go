package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/postgres/internal/queries"
)

// Materialize asks when the next schedule is due, without a transaction, and
// when one is evaluates those that are, under an advisory lock that ends with
// the transaction.
func (s *Store) Materialize(
	ctx context.Context, limit int, decide func(now time.Time, s durable.Schedule) durable.Decision,
) (durable.Materialized, error) {
	if err := s.usable(ctx); err != nil {
		return durable.Materialized{}, s.fail("materialize", err)
	}
	next, err := s.queries(s.engine).NextLook(ctx)
	if err != nil {
		return durable.Materialized{}, s.fail("materialize", err)
	}
	if next != 0 {
		return durable.Materialized{Next: max(fromMicro(next), -1)}, nil
	}
	var done durable.Materialized
	err = s.repeat(ctx, func() error {
		return pgx.BeginFunc(ctx, s.engine, func(tx pgx.Tx) error {
			done = durable.Materialized{}
			return s.materialize(ctx, tx, limit, decide, &done)
		})
	})
	if code(err) == notNullViolation {
		s.forgetLanes()
	}
	if err != nil {
		return durable.Materialized{}, s.fail("materialize", err)
	}
	if len(done.Runs) > 0 {
		s.hint()
	}
	return done, nil
}

func (s *Store) materialize(
	ctx context.Context, tx pgx.Tx, limit int,
	decide func(now time.Time, s durable.Schedule) durable.Decision, done *durable.Materialized,
) error {
	q := s.queries(tx)
	b := s.guarded(ctx)
	b.add(queries.Idle) // or a process that stops here would make everybody Busy
	if err := s.send(ctx, tx, b); err != nil {
		return err
	}
	evaluate, err := q.TryEvaluate(ctx, queries.TryEvaluateParams{Key: s.names.key("materialize")})
	if err != nil || !evaluate.Mine {
		done.Busy = err == nil
		return err
	}
	rows, err := q.DueSchedules(ctx, queries.DueSchedulesParams{Most: small(limit)})
	if err != nil {
		return err
	}
	done.Due = len(rows)
	unfinished, err := s.unfinishedRuns(ctx, tx, rows)
	if err != nil {
		return err
	}
	decided := make([]decided, len(rows))
	for i := range rows {
		decided[i] = decideOne(&rows[i], unfinished, evaluate.Now.UTC(), decide)
	}
	if err := s.storeDecided(ctx, tx, decided, done); err != nil {
		return err
	}
	if done.Due == limit {
		return nil // there may be more at once
	}
	next, err := q.NextLook(ctx)
	switch done.Next = fromMicro(next); {
	case next < 0:
		done.Next = -1
	case next == 0 && done.Due == 0:
		done.Next = heldPause
	}
	return err
}

// unfinishedRuns tells which of the runs that schedules remember have not
// ended. The schedules' rows are locked, so none can be added.
func (s *Store) unfinishedRuns(ctx context.Context, tx pgx.Tx, rows []queries.DueSchedulesRow) (map[uuid.UUID]bool, error) {
	var ids uuidArray
	for i := range rows {
		ids = append(ids, rows[i].Unfinished...)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	unfinished := map[uuid.UUID]bool{}
	b := &batch{names: s.names}
	b.add(queries.UnfinishedRuns, ids).Query(func(rows pgx.Rows) error {
		return scanIDs(rows, func(id uuid.UUID) { unfinished[id] = true })
	})
	return unfinished, s.send(ctx, tx, b)
}

// heldPause is when to look again for due schedules whose rows others hold.
const heldPause = 100 * time.Millisecond

// decided is a due schedule and what becomes of it.
type decided struct {
	id         int32
	generation int64
	decision   durable.Decision
	runs       []durable.NewRun
	unfinished []uuid.UUID // before these
}

func decideOne(
	row *queries.DueSchedulesRow, unfinished map[uuid.UUID]bool, now time.Time, decide func(time.Time, durable.Schedule) durable.Decision,
) decided {
	one := toSchedule(row)
	d := decided{id: row.ID, generation: row.Generation}
	for _, id := range row.Unfinished {
		if unfinished[id] {
			d.unfinished = append(d.unfinished, id)
		}
	}
	one.Unfinished = len(d.unfinished)
	d.decision = decide(now, one)
	if d.decision.Fault != "" {
		return d
	}
	for _, o := range d.decision.Occurrences {
		d.runs = append(d.runs, o.Run)
	}
	if err := durable.CheckRuns(d.runs); err != nil {
		d.fault(err)
	}
	return d
}

// fault leaves the schedule where it stands and notes why.
func (d *decided) fault(err error) {
	d.runs = nil
	d.decision = durable.Decision{Fault: err.Error()}
}

// storeDecided stores all decisions, and when the database refuses one, each by
// itself: one bad schedule never stops the others.
func (s *Store) storeDecided(ctx context.Context, tx pgx.Tx, all []decided, done *durable.Materialized) error {
	if len(all) == 0 {
		return nil
	}
	set := laneSet{}
	for i := range all {
		for j := range all[i].runs {
			set[laneOf(&all[i].runs[j])] = 0
		}
	}
	if err := s.laneIDs(ctx, set); err != nil {
		return err
	}
	ids, err := s.storeSome(ctx, tx, all, set)
	if !refusesData(err) || code(err) == notNullViolation {
		done.Runs = ids
		return err
	}
	for i := range all {
		ids, err := s.storeSome(ctx, tx, all[i:i+1], set)
		if refusesData(err) {
			all[i].fault(err)
			ids, err = s.storeSome(ctx, tx, all[i:i+1], set)
		}
		if err != nil {
			return err
		}
		done.Runs = append(done.Runs, ids...)
	}
	return nil
}

// storeSome stores decisions under a savepoint.
func (s *Store) storeSome(ctx context.Context, tx pgx.Tx, some []decided, set laneSet) ([]durable.RunID, error) {
	var ids []durable.RunID
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		b := &batch{names: s.names}
		addOccurrences(b, some, set, &ids)
		addSkips(b, some)
		addAdvances(b, some)
		return s.send(ctx, tx, b)
	})
	return ids, err
}

func addOccurrences(b *batch, some []decided, set laneSet, ids *[]durable.RunID) {
	var runs []durable.NewRun
	var schedules []int32
	var generations []int64
	var keys []string
	for i := range some {
		for j := range some[i].runs {
			runs = append(runs, some[i].runs[j])
			schedules, generations = append(schedules, some[i].id), append(generations, some[i].generation)
			keys = append(keys, some[i].decision.Occurrences[j].Key)
		}
	}
	if len(runs) == 0 {
		return
	}
	args := append(columnsOf(runs, set).args(), schedules, generations, keys)
	b.add(queries.MaterializeRuns, args...).Query(func(rows pgx.Rows) error {
		return scanIDs(rows, func(id uuid.UUID) { *ids = append(*ids, id) })
	})
}

func addSkips(b *batch, some []decided) {
	var p queries.InsertSkipsParams
	for i := range some {
		for _, skip := range some[i].decision.Skips {
			p.Schedules, p.Reasons = append(p.Schedules, some[i].id), append(p.Reasons, string(skip.Reason))
			p.Firsts, p.Lasts = append(p.Firsts, skip.First), append(p.Lasts, skip.Last)
		}
	}
	if len(p.Schedules) > 0 {
		b.add(queries.InsertSkips, p.Schedules, p.Firsts, p.Lasts, p.Reasons)
	}
}

// unfinishedKept bounds the unfinished runs that a schedule remembers, where
// they may overlap: the latest.
const unfinishedKept = 100

func addAdvances(b *batch, some []decided) {
	var p queries.AdvanceSchedulesParams
	var nexts []*time.Time
	for i := range some {
		one := &some[i]
		ids := one.unfinished
		for j := range one.runs {
			ids = append(ids, one.runs[j].ID)
		}
		p.Ids, nexts = append(p.Ids, one.id), append(nexts, timeOrNull(one.decision.NextAt))
		p.Waitings = append(p.Waitings, micro(one.decision.Waiting))
		p.Unfinished = append(p.Unfinished, idArray(ids[max(len(ids)-unfinishedKept, 0):]))
		p.Faults = append(p.Faults, storableFault(one.decision.Fault))
	}
	b.add(queries.AdvanceSchedules, p.Ids, nexts, p.Waitings, p.Unfinished, p.Faults)
}

// idArray writes an array of ids as PostgreSQL reads it from text.
func idArray(ids []uuid.UUID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = id.String()
	}
	return "{" + strings.Join(words, ",") + "}"
}

func toSchedule(row *queries.DueSchedulesRow) durable.Schedule {
	one := durable.Schedule{
		Name: row.Name, Hash: row.Hash, Generation: row.Generation, Job: row.Job, Queue: row.Queue, Priority: int(row.Priority),
		Args: []byte(row.Args), MaxAttempts: int(row.MaxAttempts), Timeout: fromMicro(row.Timeout),
		OnCrash: crashPolicy(row.OnCrash), Tags: row.Tags, Waiting: fromMicro(row.Waiting),
	}
	_ = one.SetSpec([]byte(row.Spec)) // a spec that cannot be read is a schedule without a rule, and decide says so
	if one.Waiting > 0 {
		one.LookAt = row.LookAt.UTC()
	}
	if row.NextAt != nil {
		one.NextAt = row.NextAt.UTC()
	}
	return one
}
