package store

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"
)

// Completer is a run that can end in a transaction of its handler: a *durable.Run.
type Completer interface {
	// CompleteIn ends the run as succeeded in a transaction; see durable.Run.CompleteIn.
	CompleteIn(ctx context.Context, tx Tx) error
}

// Completing ends a run together with its effects. It begins a transaction of type T,
// calls work with it, ends the run as succeeded in the same transaction, and commits.
// When work or any of these steps fails, Completing rolls the transaction back and returns
// the error; the handler returns that error as it is, so that the attempt counts as failed.
//
//	return complete(ctx, run, func(tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "UPDATE accounts SET …")
//		return err
//	})
//
// Completing never repeats work, not even after a serialization failure: the run's retry
// policy does. If the reply to the commit is lost, it returns an error, and the worker then
// finds out whether the commit took effect.
//
// Keep a Completing in the struct of your handlers. A program gets it from its engine, such
// as postgres.Completing; a test gets it from durabletest.Completing.
type Completing[T any] func(ctx context.Context, run Completer, work func(tx T) error) error

// CompletingSQL makes the Completing of an engine whose transactions are those of
// database/sql; bind binds the store to one. Programs call that of their engine instead.
func CompletingSQL(db *sql.DB, bind func(*sql.Tx) Tx) Completing[*sql.Tx] {
	return func(ctx context.Context, run Completer, work func(tx *sql.Tx) error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // a no-op after the commit
		if err := work(tx); err != nil {
			return err
		}
		if err := run.CompleteIn(ctx, bind(tx)); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// Transacting executes work in a transaction of type T and commits it; bound is the store bound to
// that transaction. When work or the commit fails, it rolls back and returns the error. A
// transaction that the database asks to be repeated, for a serialization failure or a deadlock, is
// repeated a few times, work included. A program gets it from its engine, such as
// postgres.Transacting; a test gets it from durabletest.Transacting.
type Transacting[T any] func(ctx context.Context, work func(tx T, bound Tx) error) error

// TransactingSQL makes the Transacting of an engine whose transactions are those of database/sql;
// bind binds the store to one. Programs call that of their engine instead.
func TransactingSQL(db *sql.DB, bind func(*sql.Tx) Tx) Transacting[*sql.Tx] {
	return func(ctx context.Context, work func(tx *sql.Tx, bound Tx) error) error {
		return Repeating(ctx, func() error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }() // a no-op after the commit
			if err := work(tx, bind(tx)); err != nil {
				return err
			}
			return tx.Commit()
		})
	}
}

// transactingTries is how often a transaction is executed that the database asks to be repeated.
const transactingTries = 5

// Repeating executes a transaction, and repeats it when the database asks for that: SQLSTATE 40001
// and 40P01. Engines call it.
func Repeating(ctx context.Context, transaction func() error) error {
	for try := 1; ; try++ {
		err := transaction()
		var stated interface{ SQLState() string }
		if !errors.As(err, &stated) || stated.SQLState() != "40001" && stated.SQLState() != "40P01" || try == transactingTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(float64(5*time.Millisecond<<try) * (0.5 + rand.Float64()))): //nolint:gosec // spreads load
		}
	}
}
