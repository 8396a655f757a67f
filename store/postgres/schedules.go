package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Materialize asks when the next schedule is due, without a transaction, and
// when one is evaluates those that are, under an advisory lock that ends with
// the transaction. While more are due than one transaction takes, there are two
// such locks: two transactions then evaluate at once, of all processes.
func (s *Store) Materialize(
	ctx context.Context, limit int, decide func(now time.Time, s store.Schedule) store.Decision,
) (store.Materialized, error) {
	if err := s.usable(ctx); err != nil {
		return store.Materialized{}, s.fail("materialize", err)
	}
	if !s.crowd.is() {
		next, err := s.queries(s.engine).NextLook(ctx, queries.NextLookParams{Aside: s.resting.Resting(lease.Elapsed())})
		if err != nil {
			return store.Materialized{}, s.fail("materialize", err)
		}
		if next != 0 {
			return store.Materialized{Next: max(fromMicro(next), -1)}, nil
		}
	}
	done, err := s.narrowed(ctx, limit, func(limit int) (attempt, error) { return s.attempt(ctx, limit, decide) })
	if err != nil {
		return store.Materialized{}, s.fail("materialize", err)
	}
	if len(done.Runs) > 0 {
		s.hint()
	}
	return done, nil
}

// attempt is what one transaction did, also one that has failed.
type attempt struct {
	store.Materialized

	first string // the schedule that it looked at first; empty: it came to none
}

func (s *Store) attempt(
	ctx context.Context, limit int, decide func(now time.Time, s store.Schedule) store.Decision,
) (attempt, error) {
	var done attempt
	refused := refusedLanes{}
	err := s.withLanes(ctx, refused, func() error {
		return inTx(ctx, s.engine, func(tx pgx.Tx) error {
			done = attempt{}
			return s.materialize(ctx, tx, limit, refused, decide, &done)
		})
	})
	if code(err) == notNullViolation {
		s.forgetLanes()
	}
	return done, err
}

// narrowed materializes, and when the database refuses the whole transaction, so
// that it does not show whose fault that is (a row that cannot be read, a check at
// the commit), again with ever fewer schedules, from the head of the index on. One
// that is refused alone is set aside.
func (s *Store) narrowed(ctx context.Context, limit int, try func(limit int) (attempt, error)) (store.Materialized, error) {
	done, err := try(limit)
	for n := limit; refusesRows(err) && code(err) != notNullViolation && ctx.Err() == nil; {
		if n <= 1 {
			return s.setAside(ctx, done.first, err)
		}
		if done.Due > 0 {
			n = min(n, done.Due)
		}
		n = max(n/2, 1)
		s.crowd.forget()
		if done, err = try(n); err == nil && done.Due == n {
			done.Due = limit // there are more
		}
	}
	return done.Materialized, err
}

// setAside passes over a schedule for a while, without a change to its row: that
// may be refused too. Without a name it is the one that is due first.
func (s *Store) setAside(ctx context.Context, name string, refused error) (store.Materialized, error) {
	if name == "" {
		var err error
		name, err = s.queries(s.engine).FirstDue(ctx, queries.FirstDueParams{Aside: s.resting.Resting(lease.Elapsed())})
		if err != nil {
			return store.Materialized{}, errors.Join(refused, err)
		}
	}
	again := s.resting.Put(name, lease.Elapsed())
	return store.Materialized{Passed: []store.PassedOver{{Kind: "schedule", Name: name, Again: again, Err: refused}}}, nil
}

func (s *Store) materialize(
	ctx context.Context, tx pgx.Tx, limit int, refused refusedLanes,
	decide func(now time.Time, s store.Schedule) store.Decision, done *attempt,
) error {
	q := s.queries(tx)
	b := s.guarded(ctx)
	b.add(queries.Idle) // or a process that stops here would make everybody Busy
	if err := s.send(ctx, tx, b); err != nil {
		return err
	}
	due, crowded := s.crowd.next(small(limit))
	due.Aside = s.resting.Resting(lease.Elapsed())
	evaluate, err := q.TryEvaluate(ctx, queries.TryEvaluateParams{Key: s.names.key("materialize")})
	if err == nil && !evaluate.Mine && crowded {
		evaluate, err = q.TryEvaluate(ctx, queries.TryEvaluateParams{Key: s.names.key("materialize beside")})
	}
	if err != nil || !evaluate.Mine {
		done.Busy = err == nil
		return err
	}
	rows, err := q.DueSchedules(ctx, due)
	if err != nil {
		return err
	}
	if done.Due = len(rows); done.Due > 0 {
		done.first = rows[0].Name
	}
	s.crowd.looked(rows, due.Most)
	one := func(schedule store.Schedule) store.Decision { return decide(evaluate.Now.UTC(), schedule) }
	if err := s.inParts(ctx, tx, rows, refused, one, &done.Materialized); err != nil {
		return err
	}
	if done.Due == limit {
		return nil // there may be more at once
	}
	next, err := q.NextLook(ctx, queries.NextLookParams{Aside: s.resting.Resting(lease.Elapsed())})
	switch done.Next = fromMicro(next); {
	case next < 0:
		done.Next = -1
	case next == 0 && done.Due == 0 && due.AfterAt == nil:
		done.Next = heldPause
	}
	return err
}

// Hasten has schedules that wait looked at now.
func (s *Store) Hasten(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	if err := s.usable(ctx); err != nil {
		return s.fail("hasten", err)
	}
	b := s.guardedFor(ctx, heldLimit) // a look at its time passes over what somebody holds
	b.add(queries.HastenSchedules, names)
	if err := s.send(ctx, s.engine, b); err != nil {
		return s.fail("hasten", err)
	}
	return nil
}

// heldPause is when to look again for due schedules whose rows others hold.
const heldPause = 100 * time.Millisecond
