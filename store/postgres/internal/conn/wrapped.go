package conn

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// wrapped is a pool whose connections are not pinned, or whose default isolation is not
// ours: each statement takes with it what whole puts around a batch, in one round trip.
type wrapped struct {
	store *DB
	pool  *pgxpool.Pool
}

// Exec sends a statement.
func (w wrapped) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	results := w.send(ctx, sql, args)
	tag, err := results.Exec()
	return tag, errors.Join(err, results.Close())
}

// Query sends a statement and returns its rows, which have to be closed.
func (w wrapped) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	results := w.send(ctx, sql, args)
	rows, err := results.Query()
	if err != nil {
		_ = results.Close()
		return nil, err
	}
	return &wrappedRows{rows, results, nil}, nil
}

// QueryRow sends a statement that returns one row.
func (w wrapped) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := w.Query(ctx, sql, args...)
	return wrappedRow{rows, err}
}

func (w wrapped) send(ctx context.Context, sql string, args []any) pgx.BatchResults {
	one := &Batch{Names: w.store.Names}
	one.Queue(sql, args...)
	whole := w.store.whole(one, w.pool)
	before := whole.Len() - 1
	if w.store.begins {
		before-- // the commit
	}
	results := lend(ctx, w.pool, whole)
	for range before {
		_, _ = results.Exec() // an error comes back with the statement itself
	}
	return results
}

// wrappedRows are rows that end their batch.
type wrappedRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error
}

// Close ends the reading and gives the connection back.
func (r *wrappedRows) Close() {
	r.Rows.Close()
	if r.results != nil {
		r.err = r.results.Close()
		r.results = nil
	}
}

// Next goes to the next row, and closes after the last.
func (r *wrappedRows) Next() bool {
	if r.results == nil {
		return false
	}
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Err says what went wrong, once closed.
func (r *wrappedRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// wrappedRow is the one row that was wanted.
type wrappedRow struct {
	rows pgx.Rows
	err  error
}

// Scan reads it.
func (r wrappedRow) Scan(targets ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(targets...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
