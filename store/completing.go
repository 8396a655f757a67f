package store

import (
	"context"
	"database/sql"
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
