package postgres

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Materialize asks when the next schedule is due, without a transaction, and
// when one is evaluates those that are, under an advisory lock that ends with
// the transaction. While more are due than one transaction takes, there are two
// such locks: two transactions then evaluate concurrently, of all processes.
func (s *Store) Materialize(ctx context.Context, limit int, decide decider) (store.MaterializeResult, error) {
	if err := s.schema.Usable(ctx); err != nil {
		return store.MaterializeResult{}, s.db.Fail("materialize", err)
	}
	if !s.backlog.active() {
		var next time.Duration
		err := s.db.InBackground(ctx, func() (err error) {
			next, err = s.nextIn(ctx, s.db.Engine)
			return err
		})
		if err != nil {
			return store.MaterializeResult{}, s.db.Fail("materialize", err)
		}
		if next != 0 {
			return store.MaterializeResult{Next: next}, nil
		}
	}
	done, err := s.attempt(ctx, limit, decide)
	if err != nil {
		done, err = s.narrowed(ctx, limit, decide, done, err)
	}
	if err != nil {
		return store.MaterializeResult{}, s.db.Fail("materialize", err)
	}
	if done.taken > 0 {
		s.resting.Took(lease.Elapsed())
	}
	if len(done.Runs) > 0 {
		s.wake.Hint()
	}
	return done.MaterializeResult, nil
}

// decider says what happens to a due schedule.
type decider = func(now time.Time, s store.Schedule) store.Decision

// attempt is what one transaction did, also one that has failed.
type attempt struct {
	store.MaterializeResult

	first   string            // the schedule that it evaluated first; empty: it came to none
	taken   int               // schedules whose decision is stored
	refused []refusedOnItsOwn // those whose decision was not, each tried alone
}

// attempt decides about due schedules and stores what was decided, in one transaction.
func (s *Store) attempt(ctx context.Context, limit int, decide decider) (done attempt, err error) {
	refused := refusedLanes{}
	err = s.withLanes(ctx, s.db.Engine, refused, func(tx pgx.Tx) error {
		done = attempt{}
		due, now, err := s.toEvaluate(ctx, tx, limit)
		if done.Busy = err == nil && due == nil; due == nil {
			return err
		}
		rows, err := s.db.Queries(tx).DueSchedules(ctx, *due)
		if err != nil {
			return err
		}
		if done.Due = len(rows); done.Due > 0 {
			done.first = rows[0].Name
		}
		s.backlog.looked(rows, due.Most)
		for len(rows) > 0 {
			some, err := s.decideSome(ctx, tx, rows[:partOf(rows)], now, decide)
			if err == nil {
				err = s.storeDecided(ctx, tx, some, refused, &done)
			}
			if err != nil {
				return err
			}
			rows = rows[len(some):]
		}
		if err := s.judgeRefused(ctx, tx, &done); err != nil || done.Due == limit {
			return err // there may be more immediately
		}
		done.Next, err = s.nextIn(ctx, tx)
		if done.Next == 0 && done.Due == 0 && due.AfterAt == nil {
			done.Next = heldPause
		}
		return err
	})
	if conn.Code(err) == conn.NotNullViolation {
		s.forgetLanes()
	}
	return done, err
}

// toEvaluate is which schedules to evaluate now in a transaction, and the server's time; nil:
// other transactions evaluate.
func (s *Store) toEvaluate(ctx context.Context, tx pgx.Tx, limit int) (*queries.DueSchedulesParams, time.Time, error) {
	q := s.db.Queries(tx)
	b := s.db.Guarded(ctx)
	b.Add(queries.Idle) // or a process that stops here would make everybody Busy
	if err := s.db.Send(ctx, tx, b); err != nil {
		return nil, time.Time{}, err
	}
	due, crowded := s.backlog.next(conn.Small(limit))
	due.Aside = s.resting.Resting(lease.Elapsed())
	evaluate, err := q.TryEvaluate(ctx, queries.TryEvaluateParams{Key: s.db.Names.Key("materialize")})
	if err == nil && !evaluate.Mine && crowded {
		evaluate, err = q.TryEvaluate(ctx, queries.TryEvaluateParams{Key: s.db.Names.Key("materialize beside")})
	}
	if err != nil || !evaluate.Mine {
		return nil, time.Time{}, err
	}
	return &due, evaluate.Now.UTC(), nil
}

// nextIn is how soon a schedule is due that does not rest: zero now, -1 never.
func (s *Store) nextIn(ctx context.Context, on queries.DBTX) (time.Duration, error) {
	next, err := s.db.Queries(on).NextEvaluation(ctx, queries.NextEvaluationParams{Aside: s.resting.Resting(lease.Elapsed())})
	return max(conn.FromMicro(next), -1), err
}

// ReevaluateNow has schedules that wait evaluated now.
func (s *Store) ReevaluateNow(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	if err := s.schema.Usable(ctx); err != nil {
		return s.db.Fail("reevaluate schedules", err)
	}
	b := s.db.GuardedFor(ctx, conn.HeldLimit) // a look at its time skips what a transaction holds
	b.Add(queries.HastenSchedules, names)
	if err := s.db.Send(ctx, s.db.Engine, b); err != nil {
		return s.db.Fail("reevaluate schedules", err)
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
func (s *Store) narrowed(ctx context.Context, limit int, decide decider, done attempt, err error) (attempt, error) {
	for n := limit; narrows(err) && ctx.Err() == nil; {
		if n <= 1 {
			return s.setAside(ctx, limit, decide, done.first, err)
		}
		if done.Due > 0 {
			n = min(n, done.Due)
		}
		n = max(n/2, 1)
		s.backlog.forget()
		if done, err = s.attempt(ctx, n, decide); err == nil && done.Due == n {
			done.Due = limit // there are more
		}
	}
	if err != nil && limit == 1 && done.first != "" && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return s.outOfTime(done.first, err)
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
func (s *Store) setAside(ctx context.Context, limit int, decide decider, name string, refused error) (attempt, error) {
	if name == "" {
		var err error
		name, err = s.db.Queries(s.db.Engine).FirstDue(ctx, queries.FirstDueParams{Aside: s.resting.Resting(lease.Elapsed())})
		if err != nil {
			return attempt{}, errors.Join(refused, err)
		}
	}
	again, blamed := s.resting.Doubt(name, lease.Elapsed())
	var done attempt
	if !blamed {
		var err error
		if done, err = s.attempt(ctx, limit, decide); err != nil || done.taken == 0 {
			return attempt{}, refused
		}
		again = s.resting.Put(name, lease.Elapsed())
	}
	done.SetAside = append(done.SetAside, store.SetAside{Kind: "schedule", Name: name, Again: again, Err: refused})
	return done, nil
}

// outOfTime doubts a schedule that was alone and took all the time of the call.
func (s *Store) outOfTime(name string, err error) (attempt, error) {
	again, blamed := s.resting.Doubt(name, lease.Elapsed())
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
func (s *Store) judgeRefused(ctx context.Context, tx pgx.Tx, done *attempt) error {
	if len(done.refused) == 0 {
		return nil
	}
	own := rules.OwnFault(done.taken, len(done.refused), conn.RefusesData(done.refused[0].err))
	for i := range done.refused {
		one := &done.refused[i]
		if own {
			if err := s.storeFault(ctx, tx, one, done); err != nil {
				return err
			}
		} else if again, blamed := s.resting.Doubt(one.name, lease.Elapsed()); blamed {
			done.SetAside = append(done.SetAside, store.SetAside{Kind: "schedule", Name: one.name, Again: again, Err: one.err})
		}
	}
	if !own && len(done.SetAside) == 0 {
		return errors.Join(rules.ErrNoneAdvanced, done.refused[0].err)
	}
	return nil
}

// storeFault rests a schedule with a fault; when that is refused too, it is set aside.
func (s *Store) storeFault(ctx context.Context, tx pgx.Tx, one *refusedOnItsOwn, done *attempt) error {
	_, err := s.storeSome(ctx, tx, []decided{one.decided}, places{}, general)
	if !conn.RefusesRows(err) {
		return err
	}
	again := s.resting.Put(one.name, lease.Elapsed())
	done.SetAside = append(done.SetAside, store.SetAside{Kind: "schedule", Name: one.name, Again: again, Err: err})
	return nil
}

// scheduleNames remembers what schedules are called. While one server answers, their numbers are never used
// again, and their names never change.
type scheduleNames struct {
	mu    sync.Mutex
	names map[int32]string // empty: it has been deleted
}

// scheduleNamesMost bounds the names that are remembered.
const scheduleNamesMost = 10_000

// forget empties the cache: the numbers in it may stand for other schedules now.
func (n *scheduleNames) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.names)
}

// nameSchedules gives claimed runs the names of their schedules. A server that refuses
// to say them keeps no run from being executed.
func (s *Store) nameSchedules(ctx context.Context, got *dealing) error {
	if got.schedules == nil {
		return nil
	}
	names, unknown := s.scheduleNames.of(got.schedules)
	if len(unknown) > 0 {
		rows, err := s.db.Queries(s.db.Engine).ScheduleNames(ctx, queries.ScheduleNamesParams{Ids: unknown})
		switch {
		case conn.Code(err) != "" && !strings.HasPrefix(conn.Code(err), "57P"): // the server stays: asking again would not help, and other runs wait for this claim
			s.db.Log.Warn("the names of schedules cannot be read; their runs are executed without them", "event", "schedule.names_unreadable", "error", err)
		case err != nil:
			return err
		default:
			for _, row := range rows {
				names[row.ID] = row.Name
			}
			s.scheduleNames.learn(names)
		}
	}
	for i := range got.runs {
		if id, of := got.schedules[got.runs[i].ID]; of {
			got.runs[i].Schedule = names[id]
		}
	}
	return nil
}

// of returns the names that are known, and the numbers of the other schedules, whose
// names are empty.
func (n *scheduleNames) of(schedules map[store.RunID]int32) (names map[int32]string, unknown []int32) {
	names = map[int32]string{}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range schedules {
		if _, seen := names[id]; seen {
			continue
		}
		name, known := n.names[id]
		if names[id] = name; !known {
			unknown = append(unknown, id)
		}
	}
	return names, unknown
}

// learn adds names.
func (n *scheduleNames) learn(names map[int32]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.names == nil || len(n.names) > scheduleNamesMost {
		n.names = map[int32]string{}
	}
	maps.Copy(n.names, names)
}
