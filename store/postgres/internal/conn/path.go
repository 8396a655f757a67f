package conn

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Our statements name the schema of every table, but few name that of a function
// or an operator. Where the arguments of a call are not exactly those of
// pg_catalog's, PostgreSQL prefers one of another schema in the search_path that
// fits better, and runs it as our role. So our own connections search pg_catalog
// only. Statements that go through the caller's transaction, whose settings
// are the caller's, have exact arguments or say pg_catalog themselves.

// pinnedPath is the search_path of our own connections.
const pinnedPath = "pg_catalog"

// refusesPath reports whether a pooler refused the search_path as a parameter of
// the connection: PgBouncer knows few parameters, and this is none of them.
func refusesPath(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && strings.Contains(server.Message, "startup parameter")
}

// opened makes the general pool and that of the beats, and checks the server through the one
// that will need a connection: a process that only works needs none of the general pool, and
// operators need none of the other. Where the connections cannot be pinned as a whole, each transaction is.
func (d *DB) opened(ctx context.Context, general, beats *pgxpool.Config) (err error) {
	for {
		if d.General, err = pgxpool.NewWithConfig(ctx, general); err != nil {
			return err
		}
		if d.Beats.Pool, err = pgxpool.NewWithConfig(ctx, beats); err != nil {
			return err
		}
		through := d.Beats.Pool
		if d.Options.Operators {
			through = d.General
		}
		if err = d.checkServer(ctx, through); !refusesPath(err) || d.Dial.ConnConfig.RuntimeParams["search_path"] == "" {
			return err
		}
		d.General.Close()
		d.Beats.Pool.Close()
		for _, config := range []*pgxpool.Config{d.Dial, general, beats} {
			delete(config.ConnConfig.RuntimeParams, "search_path")
		}
	}
}

// whole is the batch as it is sent outside a transaction: with a begin and an
// end of its own where the default isolation is not ours, and pinned where the
// connection is not.
func (d *DB) whole(b *Batch, pool *pgxpool.Pool) *pgx.Batch {
	whole := &pgx.Batch{}
	if d.begins {
		whole.Queue(queries.Begin)
	}
	if d.free(pool) {
		whole.Queue(queries.Pin)
	}
	if pool == d.Reading && d.Unpinned {
		whole.Queue(queries.ReadOnly)
	}
	b.copyTo(whole)
	if d.begins {
		whole.Queue(queries.Commit)
	}
	return whole
}

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
