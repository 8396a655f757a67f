package timetable

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/enqueue"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// decided is a due schedule and what happens to it.
type decided struct {
	id         int32
	name       string
	generation int64
	decision   store.Decision
	runs       []store.NewRun
	unfinished store.Unfinished // before these
	plan       store.Plan
}

// fault leaves the schedule where it is and notes why.
func (d *decided) fault(err error) {
	d.runs = nil
	d.decision = store.Decision{Fault: err.Error()}
}

// decidedPerStep is how many schedules are stored in one statement.
const decidedPerStep = 500

// decideSome decides about due schedules, whose rows are locked, at an instant of the
// server's clock. What is wrong with one of them is its own fault and no other's.
func (t *Timetable) decideSome(ctx context.Context, tx pgx.Tx, rows []queries.DueSchedulesRow, now time.Time, decide Decider) ([]decided, error) {
	var ids conn.UUIDs
	for i := range rows {
		ids = append(ids, rows[i].Unfinished...)
	}
	known, err := t.unfinishedRuns(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	some := make([]decided, len(rows))
	for i := range rows {
		row, d := &rows[i], &some[i]
		one, fault := t.specs.schedule(row)
		unfinished, err := t.unfinishedOf(ctx, tx, row.ID, row.Unfinished, known, &one.Plan, one.OverlapPolicy())
		switch {
		case conn.Code(err) != "": // that of this schedule alone
			fault = err
		case err != nil:
			return nil, err
		}
		one.Unfinished = len(unfinished.IDs)
		*d = decided{id: row.ID, name: row.Name, generation: row.Generation, unfinished: unfinished, plan: one.Plan}
		if fault == nil {
			d.decision = decide(now, one)
			fault = d.takeRuns()
		}
		if fault != nil {
			d.fault(fault)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // or what it had no time for would be a fault
	}
	return some, nil
}

// takeRuns takes the runs of a decision, unless it is a fault, and says what is wrong
// with them.
func (d *decided) takeRuns() error {
	if d.decision.Fault != "" {
		return nil
	}
	for _, o := range d.decision.Occurrences {
		d.runs = append(d.runs, o.Run)
	}
	return store.CheckRuns(d.runs)
}

// partOf is how many of some schedules are stored in one statement, by what they
// remember.
func partOf(rows []queries.DueSchedulesRow) int {
	ids := 0
	for i := range rows {
		if ids += len(rows[i].Unfinished); i > 0 && (i == decidedPerStep || ids > unfinishedPerStep) {
			return i
		}
	}
	return len(rows)
}

// waits are the runs for which the schedule waits.
func (d *decided) waits() (waits []store.WaitingSchedule) {
	if d.decision.Waiting == 0 || d.decision.Fault != "" {
		return nil
	}
	for _, id := range d.unfinished.IDs {
		waits = append(waits, store.WaitingSchedule{Schedule: d.name, Run: id, Pause: d.decision.Waiting})
	}
	for i := range d.runs {
		waits = append(waits, store.WaitingSchedule{Schedule: d.name, Run: d.runs[i].ID, Pause: d.decision.Waiting})
	}
	return waits
}

// way is with which statements decisions are stored.
type way struct {
	insert string
	alike  func(*decided) bool // those that are advanced in one form
}

// quick knows no conflicts and is what most decisions need; general takes any.
var (
	quick   = way{queries.MaterializeNew, (*decided).plain}                      //nolint:gochecknoglobals // never changes
	general = way{queries.MaterializeRuns, func(*decided) bool { return false }} //nolint:gochecknoglobals // never changes
)

// storeDecided stores decisions, mostly the quick way. When the database refuses,
// the general one follows, and when it refuses that, halves of them, down to each
// schedule by itself: a bad one never stops the others.
func (t *Timetable) storeDecided(ctx context.Context, tx pgx.Tx, some []decided, refused numbers.RefusedLanes, done *attempt) error {
	set, err := t.decidedLanes(ctx, tx, some, refused)
	if err != nil {
		return err
	}
	ids, err := t.storeSome(ctx, tx, some, set, quick)
	if conn.RefusesRows(err) && conn.Code(err) != conn.NotNullViolation {
		return t.storeHalves(ctx, tx, some, set, done)
	}
	if err == nil {
		done.take(some, ids)
	}
	return err
}

// storeHalves stores decisions in ever smaller parts. A schedule that is refused
// alone is judged when all have been tried.
func (t *Timetable) storeHalves(ctx context.Context, tx pgx.Tx, some []decided, set numbers.Places, done *attempt) error {
	ids, err := t.storeSome(ctx, tx, some, set, general)
	if !conn.RefusesRows(err) {
		if err == nil {
			done.take(some, ids)
		}
		return err
	}
	if half := len(some) / 2; half > 0 {
		if err := t.storeHalves(ctx, tx, some[:half], set, done); err != nil {
			return err
		}
		return t.storeHalves(ctx, tx, some[half:], set, done)
	}
	some[0].fault(err)
	done.refused = append(done.refused, refusedOnItsOwn{some[0], err})
	return nil
}

// take records that decisions are stored, and the runs that they made.
func (a *attempt) take(some []decided, ids []store.RunID) {
	a.Runs = append(a.Runs, ids...)
	for i := range some {
		if some[i].decision.Fault == "" {
			a.taken++
		}
		a.Waits = append(a.Waits, some[i].waits()...)
	}
}

// decidedLanes finds the lanes of the runs. A lane that cannot be made is a
// fault of the schedules that need it.
func (t *Timetable) decidedLanes(ctx context.Context, tx pgx.Tx, some []decided, refused numbers.RefusedLanes) (numbers.Places, error) {
	set := numbers.Places{Lanes: numbers.LaneSet{}}
	for i := range some {
		own := numbers.LaneSet{}
		some[i].addLanes(own)
		for l := range own {
			if err := refused[l]; err != nil {
				some[i].fault(err)
				own = nil
				break
			}
		}
		maps.Copy(set.Lanes, own)
	}
	if err := t.numbers.LanesIn(ctx, tx, set.Lanes); err != nil {
		return set, err
	}
	return t.decidedLimits(ctx, tx, some, set)
}

// decidedLimits finds the limits of the runs. One that is not known, or that may not
// be used so, is a fault of the schedules that need it.
func (t *Timetable) decidedLimits(ctx context.Context, tx pgx.Tx, some []decided, set numbers.Places) (numbers.Places, error) {
	var all []store.NewRun
	for i := range some {
		own := numbers.PlacesOf(some[i].runs)
		if own.Limits == nil {
			continue
		}
		own.Lanes = set.Lanes
		err := t.numbers.CheckLimits(ctx, tx, own, some[i].runs)
		switch {
		case errors.Is(err, store.ErrInvalid):
			some[i].fault(err)
			continue
		case err != nil:
			return set, err
		case set.Limits == nil:
			set.Limits = numbers.LimitSet{}
		}
		maps.Copy(set.Limits, own.Limits)
		all = append(all, some[i].runs...)
	}
	if set.Limits == nil {
		return set, nil
	}
	return set, t.numbers.LimitLanesIn(ctx, tx, set, all)
}

func (d *decided) addLanes(set numbers.LaneSet) {
	for i := range d.runs {
		set[numbers.LaneOf(&d.runs[i])] = 0
	}
}

// storeSome stores decisions under a savepoint, all in one round trip.
func (t *Timetable) storeSome(ctx context.Context, tx pgx.Tx, some []decided, set numbers.Places, how way) ([]store.RunID, error) {
	var ids []store.RunID
	each := func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(id uuid.UUID) { ids = append(ids, id) })
	}
	b := t.db.NewBatch()
	b.Add(queries.BeginPart)
	free, limited := occurrencesOf(some)
	if len(limited.runs) > 0 {
		enqueue.AddLimited(b, limited.runs, set, limited.at, each)
	}
	if len(free.runs) > 0 {
		args := append(enqueue.ColumnsOf(free.runs, set).Parameters(), free.schedules, free.generations, free.keys, free.ats, free.names)
		b.Add(how.insert, args...).Query(each)
	}
	addSkips(b, some)
	addAdvances(b, some, how.alike)
	b.Add(queries.EndPart)
	err := t.db.Send(ctx, tx, b)
	if conn.RefusesRows(err) {
		if undone := t.db.Queries(tx).UndoPart(ctx); undone != nil {
			return nil, undone
		}
	}
	return ids, err
}

// occurrences are runs, with the schedule and the instant that each is for.
type occurrences struct {
	runs        []store.NewRun
	schedules   []int32
	generations []int64
	keys        []string
	ats         []*string
	names       []string // of the schedules
}

// at is what the i-th run is for.
func (o *occurrences) at(i int) enqueue.Occurrence {
	return enqueue.Occurrence{Schedule: o.schedules[i], Generation: o.generations[i], Key: &o.keys[i], At: o.ats[i], Name: &o.names[i]}
}

// occurrencesOf returns the runs that were decided, those that limits admit apart.
func occurrencesOf(some []decided) (free, limited occurrences) {
	n := len(some) // most have one
	free = occurrences{make([]store.NewRun, 0, n), make([]int32, 0, n), make([]int64, 0, n), make([]string, 0, n), make([]*string, 0, n), make([]string, 0, n)}
	for i := range some {
		for j := range some[i].runs {
			to := &free
			if len(some[i].runs[j].Limits) > 0 {
				to = &limited
			}
			to.runs, to.schedules = append(to.runs, some[i].runs[j]), append(to.schedules, some[i].id)
			o := &some[i].decision.Occurrences[j]
			to.generations, to.keys = append(to.generations, some[i].generation), append(to.keys, o.Key)
			to.ats, to.names = append(to.ats, rules.TextOrNil(string(store.ZonedTimeOf(o.At)))), append(to.names, some[i].name)
		}
	}
	return free, limited
}

func addSkips(b *conn.Batch, some []decided) {
	var p queries.InsertSkipsParams
	for i := range some {
		for _, skip := range some[i].decision.Skips {
			p.Schedules, p.Reasons = append(p.Schedules, some[i].id), append(p.Reasons, string(skip.Reason))
			p.Firsts, p.Lasts = append(p.Firsts, skip.First), append(p.Lasts, skip.Last)
		}
	}
	if len(p.Schedules) > 0 {
		b.Add(queries.InsertSkips, p.Schedules, p.Firsts, p.Lasts, p.Reasons)
	}
}

func addAdvances(b *conn.Batch, some []decided, isAlike func(*decided) bool) {
	var p queries.AdvanceSchedulesParams
	var nexts, nextsAlike []*time.Time
	var alike []int32
	var runs conn.UUIDs
	for i := range some {
		one := &some[i]
		if isAlike(one) {
			alike, nextsAlike = append(alike, one.id), append(nextsAlike, conn.TimeOrNull(one.decision.NextAt))
			runs = append(runs, one.runs[0].ID)
			continue
		}
		unfinished := store.Unfinished{IDs: slices.Clone(one.unfinished.IDs), Others: one.unfinished.Others}
		for j := range one.runs {
			unfinished.IDs = append(unfinished.IDs, one.runs[j].ID)
		}
		p.Ids, nexts = append(p.Ids, one.id), append(nexts, conn.TimeOrNull(one.decision.NextAt))
		p.Waitings = append(p.Waitings, conn.Micro(one.decision.Waiting))
		p.Unfinished = append(p.Unfinished, conn.IDArray(unfinished.Keep(&one.plan)))
		p.Faults = append(p.Faults, conn.StorableFault(one.decision.Fault))
	}
	if len(alike) > 0 {
		b.Add(queries.AdvanceAlike, alike, nextsAlike, runs)
	}
	if len(p.Ids) > 0 {
		b.Add(queries.AdvanceSchedules, conn.Micro(rules.FaultPause), p.Ids, nexts, p.Waitings, p.Unfinished, p.Faults)
	}
}

// plain reports whether the schedule got one run, beside none that has not ended,
// and continues: the common case.
func (d *decided) plain() bool {
	return len(d.runs) == 1 && len(d.unfinished.IDs) == 0 && !d.unfinished.Others && d.decision.Waiting == 0 && d.decision.Fault == ""
}
