package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/postgres/internal/queries"
)

// Materialize evaluates due schedules under an advisory lock that ends with
// the transaction.
func (s *Store) Materialize(
	ctx context.Context, limit int, decide func(now time.Time, s durable.Schedule) durable.Decision,
) (durable.Materialized, error) {
	if err := s.usable(ctx); err != nil {
		return durable.Materialized{}, s.fail("materialize", err)
	}
	var done durable.Materialized
	err := s.repeat(ctx, func() error {
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
	lock, statement := limits(ctx, lockLimit)
	b := &batch{names: s.names}
	b.add(queries.Limits, lock, statement)
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
	decided := make([]decided, len(rows))
	for i := range rows {
		decided[i] = decideOne(&rows[i], evaluate.Now.UTC(), decide)
	}
	if err := s.storeDecided(ctx, tx, decided, done); err != nil {
		return err
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

// heldPause is when to look again for due schedules whose rows others hold.
const heldPause = 100 * time.Millisecond

// decided is a due schedule and what becomes of it.
type decided struct {
	id         int32
	generation int64
	decision   durable.Decision
	runs       []durable.NewRun
}

func decideOne(row *queries.DueSchedulesRow, now time.Time, decide func(time.Time, durable.Schedule) durable.Decision) decided {
	d := decided{id: row.ID, generation: row.Generation, decision: decide(now, toSchedule(row))}
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

func addAdvances(b *batch, some []decided) {
	var ids []int32
	var nexts []*time.Time
	var faults []string
	for i := range some {
		ids = append(ids, some[i].id)
		nexts = append(nexts, timeOrNull(some[i].decision.NextAt))
		faults = append(faults, storableFault(some[i].decision.Fault))
	}
	b.add(queries.AdvanceSchedules, ids, nexts, faults)
}

func toSchedule(row *queries.DueSchedulesRow) durable.Schedule {
	one := durable.Schedule{
		Name: row.Name, Rule: durable.Rule{Cron: row.Cron, Zone: row.Zone, Every: durable.Duration(fromMicro(row.Every))},
		Hash: row.Hash, Generation: row.Generation, Job: row.Job, Queue: row.Queue, Priority: int(row.Priority),
		Args: []byte(row.Args), MaxAttempts: int(row.MaxAttempts), Timeout: fromMicro(row.Timeout),
		OnCrash: crashPolicy(row.OnCrash), Tags: row.Tags,
	}
	if row.NextAt != nil {
		one.NextAt = row.NextAt.UTC()
	}
	return one
}
