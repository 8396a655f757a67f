package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/postgres/internal/queries"
)

// A schedule is to blame for what the database refuses when it is refused alone
// and another one is taken. While none is, the call fails as a whole, and is soon
// made again; the schedules that were refused rest for a moment, so that those
// behind them have their turn.

// narrowed materializes, and when the database refuses the whole transaction, so
// that it does not show whose fault that is (a row that cannot be read, a check at
// the commit, a wait that takes too long), again with ever fewer schedules, from the
// head of the index on. One that is refused alone is set aside.
func (s *Store) narrowed(ctx context.Context, limit int, try func(limit int) (attempt, error)) (durable.Materialized, error) {
	done, err := try(limit)
	for n := limit; narrows(err) && ctx.Err() == nil; {
		if n <= 1 {
			return s.setAside(ctx, done.first, err, func() (attempt, error) { return try(limit) })
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
	if err != nil && limit == 1 && done.first != "" && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return s.outOfTime(done.first, err)
	}
	if err == nil && done.taken > 0 {
		s.resting.Took(lease.Elapsed())
	}
	return done.Materialized, err
}

// narrows tells whether fewer schedules may do where many were refused.
func narrows(err error) bool {
	return refusesStatement(err) && code(err) != notNullViolation && !errors.Is(err, errNoneTaken)
}

// setAside passes over a schedule for a while, without a change to its row: that
// may be refused too. Without a name it is the one that is due first. Whether it is
// to blame, the others tell.
func (s *Store) setAside(
	ctx context.Context, name string, refused error, others func() (attempt, error),
) (durable.Materialized, error) {
	if name == "" {
		var err error
		name, err = s.queries(s.engine).FirstDue(ctx, queries.FirstDueParams{Aside: s.resting.Resting(lease.Elapsed())})
		if err != nil {
			return durable.Materialized{}, errors.Join(refused, err)
		}
	}
	again, blamed := s.resting.Doubt(name, lease.Elapsed())
	var done attempt
	if !blamed {
		var err error
		if done, err = others(); err != nil || done.taken == 0 {
			return durable.Materialized{}, refused
		}
		again = s.resting.Put(name, lease.Elapsed())
		s.resting.Took(lease.Elapsed())
	}
	done.Passed = append(done.Passed, durable.PassedOver{Kind: "schedule", Name: name, Again: again, Err: refused})
	return done.Materialized, nil
}

// outOfTime doubts a schedule that was alone and took all the time of the call.
func (s *Store) outOfTime(name string, err error) (durable.Materialized, error) {
	again, blamed := s.resting.Doubt(name, lease.Elapsed())
	if !blamed {
		return durable.Materialized{}, err
	}
	return durable.Materialized{Passed: []durable.PassedOver{{Kind: "schedule", Name: name, Again: again, Err: err}}}, nil
}

// refusedOnItsOwn is a schedule whose decision the database has not taken, and that
// has it for a fault.
type refusedOnItsOwn struct {
	decided
	err error
}

// errNoneTaken says that the database has refused the decision of each schedule.
var errNoneTaken = errors.New("no schedule can be advanced")

// judgeRefused rests the schedules with a fault that are to blame for what was refused. It
// fails when none is known to be: no decision was stored, so that nothing is lost
// with the transaction.
func (s *Store) judgeRefused(ctx context.Context, tx pgx.Tx, done *attempt) error {
	if len(done.refused) == 0 {
		return nil
	}
	own := done.taken > 0 || len(done.refused) == 1 && refusesData(done.refused[0].err)
	for i := range done.refused {
		one := &done.refused[i]
		if own {
			if err := s.storeFault(ctx, tx, one, done); err != nil {
				return err
			}
		} else if again, blamed := s.resting.Doubt(one.name, lease.Elapsed()); blamed {
			done.Passed = append(done.Passed, durable.PassedOver{Kind: "schedule", Name: one.name, Again: again, Err: one.err})
		}
	}
	if !own && len(done.Passed) == 0 {
		return errors.Join(errNoneTaken, done.refused[0].err)
	}
	return nil
}

// storeFault rests a schedule with a fault; when that is refused too, it is set aside.
func (s *Store) storeFault(ctx context.Context, tx pgx.Tx, one *refusedOnItsOwn, done *attempt) error {
	_, err := s.storeSome(ctx, tx, []decided{one.decided}, laneSet{}, general)
	if !refusesRows(err) {
		return err
	}
	again := s.resting.Put(one.name, lease.Elapsed())
	done.Passed = append(done.Passed, durable.PassedOver{Kind: "schedule", Name: one.name, Again: again, Err: err})
	return nil
}
