package timetable

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Materialize asks when the next schedule is due, without a transaction, and
// when one is evaluates those that are, under an advisory lock that ends with
// the transaction. While more are due than one transaction takes, there are two
// such locks: two transactions then evaluate concurrently, of all processes.
func (t *Timetable) Materialize(ctx context.Context, limit int, decide Decider) (store.MaterializeResult, error) {
	if err := t.schema.Usable(ctx); err != nil {
		return store.MaterializeResult{}, t.db.Fail("materialize", err)
	}
	if !t.backlog.active() {
		var next time.Duration
		err := t.db.InBackground(ctx, func() (err error) {
			next, err = t.nextIn(ctx, t.db.Engine)
			return err
		})
		if err != nil {
			return store.MaterializeResult{}, t.db.Fail("materialize", err)
		}
		if next != 0 {
			return store.MaterializeResult{Next: next}, nil
		}
	}
	done, err := t.attempt(ctx, limit, decide)
	if err != nil {
		done, err = t.narrowed(ctx, limit, decide, done, err)
	}
	if err != nil {
		return store.MaterializeResult{}, t.db.Fail("materialize", err)
	}
	if done.taken > 0 {
		t.resting.Took(lease.Elapsed())
	}
	if len(done.Runs) > 0 {
		t.wake.Hint()
	}
	return done.MaterializeResult, nil
}

// Decider says what happens to a due schedule.
type Decider = func(now time.Time, s store.Schedule) store.Decision

// attempt is what one transaction did, also one that has failed.
type attempt struct {
	store.MaterializeResult

	first   string            // the schedule that it evaluated first; empty: it came to none
	taken   int               // schedules whose decision is stored
	refused []refusedOnItsOwn // those whose decision was not, each tried alone
}

// attempt decides about due schedules and stores what was decided, in one transaction.
func (t *Timetable) attempt(ctx context.Context, limit int, decide Decider) (done attempt, err error) {
	refused := numbers.RefusedLanes{}
	err = t.numbers.WithLanes(ctx, t.db.Engine, refused, func(tx pgx.Tx) error {
		done = attempt{}
		due, now, err := t.toEvaluate(ctx, tx, limit)
		if done.Busy = err == nil && due == nil; due == nil {
			return err
		}
		rows, err := t.db.Queries(tx).DueSchedules(ctx, *due)
		if err != nil {
			return err
		}
		if done.Due = len(rows); done.Due > 0 {
			done.first = rows[0].Name
		}
		t.backlog.looked(rows, due.Most)
		for len(rows) > 0 {
			some, err := t.decideSome(ctx, tx, rows[:partOf(rows)], now, decide)
			if err == nil {
				err = t.storeDecided(ctx, tx, some, refused, &done)
			}
			if err != nil {
				return err
			}
			rows = rows[len(some):]
		}
		if err := t.judgeRefused(ctx, tx, &done); err != nil || done.Due == limit {
			return err // there may be more immediately
		}
		done.Next, err = t.nextIn(ctx, tx)
		if done.Next == 0 && done.Due == 0 && due.AfterAt == nil {
			done.Next = heldPause
		}
		return err
	})
	if conn.Code(err) == conn.NotNullViolation {
		t.numbers.ForgetLanes()
	}
	return done, err
}

// toEvaluate is which schedules to evaluate now in a transaction, and the server's time; nil:
// other transactions evaluate.
func (t *Timetable) toEvaluate(ctx context.Context, tx pgx.Tx, limit int) (*queries.DueSchedulesParams, time.Time, error) {
	q := t.db.Queries(tx)
	b := t.db.Guarded(ctx)
	b.Add(queries.Idle) // or a process that stops here would make everybody Busy
	if err := t.db.Send(ctx, tx, b); err != nil {
		return nil, time.Time{}, err
	}
	due, crowded := t.backlog.next(conn.Small(limit))
	due.Aside = t.resting.Resting(lease.Elapsed())
	evaluate, err := q.TryEvaluate(ctx, queries.TryEvaluateParams{Key: t.db.Names.Key("materialize")})
	if err == nil && !evaluate.Mine && crowded {
		evaluate, err = q.TryEvaluate(ctx, queries.TryEvaluateParams{Key: t.db.Names.Key("materialize beside")})
	}
	if err != nil || !evaluate.Mine {
		return nil, time.Time{}, err
	}
	return &due, evaluate.Now.UTC(), nil
}

// nextIn is how soon a schedule is due that does not rest: zero now, -1 never.
func (t *Timetable) nextIn(ctx context.Context, on queries.DBTX) (time.Duration, error) {
	next, err := t.db.Queries(on).NextEvaluation(ctx, queries.NextEvaluationParams{Aside: t.resting.Resting(lease.Elapsed())})
	return max(conn.FromMicro(next), -1), err
}

// ReevaluateNow has schedules that wait evaluated now.
func (t *Timetable) ReevaluateNow(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	if err := t.schema.Usable(ctx); err != nil {
		return t.db.Fail("reevaluate schedules", err)
	}
	b := t.db.GuardedFor(ctx, conn.HeldLimit) // a look at its time skips what a transaction holds
	b.Add(queries.HastenSchedules, names)
	if err := t.db.Send(ctx, t.db.Engine, b); err != nil {
		return t.db.Fail("reevaluate schedules", err)
	}
	return nil
}

// heldPause is when to look again for due schedules whose rows others hold.
const heldPause = 100 * time.Millisecond

// A schedule is to blame for what the database refuses when it is refused alone
// and another one is taken. While none is, the call fails as a whole, and is soon
// made again; the schedules that were refused rest for a moment, so that those
// behind them have their turn.

// narrowed follows a transaction that failed. When the database refuses it as a whole, so
// that it does not show whose fault that is (a row that cannot be read, a check at
// the commit, a wait that takes too long), narrowed tries ever fewer schedules, from the
// head of the index on. One that is refused alone is set aside.
func (t *Timetable) narrowed(ctx context.Context, limit int, decide Decider, done attempt, err error) (attempt, error) {
	for n := limit; narrows(err) && ctx.Err() == nil; {
		if n <= 1 {
			return t.setAside(ctx, limit, decide, done.first, err)
		}
		if done.Due > 0 {
			n = min(n, done.Due)
		}
		n = max(n/2, 1)
		t.backlog.forget()
		if done, err = t.attempt(ctx, n, decide); err == nil && done.Due == n {
			done.Due = limit // there are more
		}
	}
	if err != nil && limit == 1 && done.first != "" && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return t.outOfTime(done.first, err)
	}
	return done, err
}

// narrows reports whether fewer schedules may do where many were refused.
func narrows(err error) bool {
	return conn.RefusesStatement(err) && conn.Code(err) != conn.NotNullViolation && !errors.Is(err, rules.ErrNoneAdvanced)
}

// setAside skips a schedule for a while, without a change to its row: that
// may be refused too. Without a name it is the one that is due first. Whether it is
// to blame, the others tell.
func (t *Timetable) setAside(ctx context.Context, limit int, decide Decider, name string, refused error) (attempt, error) {
	if name == "" {
		var err error
		name, err = t.db.Queries(t.db.Engine).FirstDue(ctx, queries.FirstDueParams{Aside: t.resting.Resting(lease.Elapsed())})
		if err != nil {
			return attempt{}, errors.Join(refused, err)
		}
	}
	again, blamed := t.resting.Doubt(name, lease.Elapsed())
	var done attempt
	if !blamed {
		var err error
		if done, err = t.attempt(ctx, limit, decide); err != nil || done.taken == 0 {
			return attempt{}, refused
		}
		again = t.resting.Put(name, lease.Elapsed())
	}
	done.SetAside = append(done.SetAside, store.SetAside{Kind: "schedule", Name: name, Again: again, Err: refused})
	return done, nil
}

// outOfTime doubts a schedule that was alone and took all the time of the call.
func (t *Timetable) outOfTime(name string, err error) (attempt, error) {
	again, blamed := t.resting.Doubt(name, lease.Elapsed())
	if !blamed {
		return attempt{}, err
	}
	return attempt{MaterializeResult: store.MaterializeResult{
		SetAside: []store.SetAside{{Kind: "schedule", Name: name, Again: again, Err: err}},
	}}, nil
}

// refusedOnItsOwn is a schedule whose decision the database has not taken, and that
// has it for a fault.
type refusedOnItsOwn struct {
	decided
	err error
}

// judgeRefused rests the schedules with a fault that are to blame for what was refused. It
// fails when none is known to be: no decision was stored, so that nothing is lost
// with the transaction.
func (t *Timetable) judgeRefused(ctx context.Context, tx pgx.Tx, done *attempt) error {
	if len(done.refused) == 0 {
		return nil
	}
	own := rules.OwnFault(done.taken, len(done.refused), conn.RefusesData(done.refused[0].err))
	for i := range done.refused {
		one := &done.refused[i]
		if own {
			if err := t.storeFault(ctx, tx, one, done); err != nil {
				return err
			}
		} else if again, blamed := t.resting.Doubt(one.name, lease.Elapsed()); blamed {
			done.SetAside = append(done.SetAside, store.SetAside{Kind: "schedule", Name: one.name, Again: again, Err: one.err})
		}
	}
	if !own && len(done.SetAside) == 0 {
		return errors.Join(rules.ErrNoneAdvanced, done.refused[0].err)
	}
	return nil
}

// storeFault rests a schedule with a fault; when that is refused too, it is set aside.
func (t *Timetable) storeFault(ctx context.Context, tx pgx.Tx, one *refusedOnItsOwn, done *attempt) error {
	_, err := t.storeSome(ctx, tx, []decided{one.decided}, numbers.Places{}, general)
	if !conn.RefusesRows(err) {
		return err
	}
	again := t.resting.Put(one.name, lease.Elapsed())
	done.SetAside = append(done.SetAside, store.SetAside{Kind: "schedule", Name: one.name, Again: again, Err: err})
	return nil
}
