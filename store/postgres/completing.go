package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
)

// Beginner begins transactions: a *pgxpool.Pool or a *pgx.Conn.
type Beginner interface {
	// Begin begins a transaction.
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Completing ends runs of the store together with their effects, in transactions of pgx
// that begin on pool. The pool is yours; the store uses no other connection for it.
func Completing(s *Store, pool Beginner) store.Completing[pgx.Tx] {
	return func(ctx context.Context, run store.Completer, work func(tx pgx.Tx) error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := work(tx); err != nil {
				return err
			}
			return run.CompleteIn(ctx, s.WithTx(tx))
		})
	}
}

// CompletingSQL is Completing for transactions of database/sql; see WithSQLTx for the drivers.
func CompletingSQL(s *Store, db *sql.DB) store.Completing[*sql.Tx] {
	return store.CompletingSQL(db, func(tx *sql.Tx) store.Tx { return s.WithSQLTx(tx) })
}

// Transacting executes steps of the store in transactions of pgx that begin on pool, for
// durable.StepTx. The pool is yours.
func Transacting(s *Store, pool Beginner) store.Transacting[pgx.Tx] {
	return func(ctx context.Context, work func(tx pgx.Tx, bound store.Tx) error) error {
		return store.Repeating(ctx, func() error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return work(tx, s.WithTx(tx)) })
		})
	}
}

// TransactingSQL is Transacting for transactions of database/sql; see WithSQLTx for the drivers.
func TransactingSQL(s *Store, db *sql.DB) store.Transacting[*sql.Tx] {
	return store.TransactingSQL(db, func(tx *sql.Tx) store.Tx { return s.WithSQLTx(tx) })
}
