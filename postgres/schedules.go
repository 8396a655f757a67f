package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/postgres/internal/queries"
)

// Materialize asks when the next schedule is due, without a transaction, and
// when one is evaluates those that are, under an advisory lock that ends with
// the transaction. While more are due than one transaction takes, there are two
// such locks: two transactions then evaluate at once, of all processes.
func (s *Store) Materialize(
	ctx context.Context, limit int, decide func(now time.Time, s durable.Schedule) durable.Decision,
) (durable.Materialized, error) {
	if err := s.usable(ctx); err != nil {
		return durable.Materialized{}, s.fail("materialize", err)
	}
	if !s.crowd.is() {
		next, err := s.queries(s.engine).NextLook(ctx, queries.NextLookParams{Aside: s.resting.Resting(lease.Elapsed())})
		if err != nil {
			return durable.Materialized{}, s.fail("materialize", err)
		}
		if next != 0 {
			return durable.Materialized{Next: max(fromMicro(next), -1)}, nil
		}
	}
	done, err := s.narrowed(ctx, limit, func(limit int) (attempt, error) { return s.attempt(ctx, limit, decide) })
	if err != nil {
		return durable.Materialized{}, s.fail("materialize", err)
	}
	if len(done.Runs) > 0 {
		s.hint()
	}
	return done, nil
}

// attempt is what one transaction did, also one that has failed.
type attempt struct {
	durable.Materialized

	first   string            // the schedule that it looked at first; empty: it came to none
	taken   int               // schedules whose decision is stored
	refused []refusedOnItsOwn // those whose decision was not, each tried alone
}

func (s *Store) attempt(
	ctx context.Context, limit int, decide func(now time.Time, s durable.Schedule) durable.Decision,
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

func (s *Store) materialize(
	ctx context.Context, tx pgx.Tx, limit int, refused refusedLanes,
	decide func(now time.Time, s durable.Schedule) durable.Decision, done *attempt,
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
	one := func(schedule durable.Schedule) durable.Decision { return decide(evaluate.Now.UTC(), schedule) }
	if err := s.inParts(ctx, tx, rows, refused, one, done); err != nil {
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
