package conn

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Queries returns the generated statements, in our schema.
func (d *DB) Queries(db queries.DBTX) *queries.Queries {
	if pool, ok := db.(*pgxpool.Pool); ok && (d.begins || d.free(pool)) {
		db = wrapped{d, pool}
	}
	return queries.New(named{db, d.Names})
}

// free reports whether the connections of a pool are not pinned as a whole.
func (d *DB) free(pool *pgxpool.Pool) bool { return d.Unpinned || d.Shared && pool == d.General }

// NewBatch begins a batch without a guard.
func (d *DB) NewBatch() *Batch { return &Batch{Names: d.Names} }

// Guarded begins a batch whose statements keep to their indexes.
func (d *DB) Guarded(ctx context.Context) *Batch { return d.GuardedFor(ctx, LockLimit) }

// GuardedFor is guarded with a bound of its own on waits for locks.
func (d *DB) GuardedFor(ctx context.Context, most time.Duration) *Batch {
	b := &Batch{Names: d.Names}
	lock, statement := Limits(ctx, most)
	b.Add(queries.Guard, lock, statement)
	return b
}

// Hot begins a batch as GuardedFor does with HeldLimit, for the engine's
// connections. Where those are guarded as a whole and the caller's patience is no
// shorter than theirs, nothing has to be set.
func (d *DB) Hot(ctx context.Context) *Batch {
	if d.GuardsFor(ctx) {
		return &Batch{Names: d.Names}
	}
	return d.GuardedFor(ctx, HeldLimit)
}

// Begin begins a batch; in the caller's transaction the settings are the
// caller's.
func (d *DB) Begin(ctx context.Context, to Sender) *Batch {
	if to == Sender(d.General) || to == Sender(d.Reading) {
		return d.Guarded(ctx)
	}
	return &Batch{Names: d.Names}
}

// GuardsFor reports whether the guard of the engine's connections will do for a call.
func (d *DB) GuardsFor(ctx context.Context) bool {
	_, bounded := ctx.Deadline()
	return d.guards && bounded && !WaitsLess(ctx, sessionPatience)
}

// Aloof is the pool whose connections no caller holds. If the general pool is the caller's,
// all of its connections may belong to transactions that wait for this very call.
func (d *DB) Aloof() *pgxpool.Pool {
	if d.Shared {
		return d.Engine
	}
	return d.General
}

// HotAloof begins a batch for Aloof as Hot does for the engine's connections. Those of the general
// pool are not guarded as a whole.
func (d *DB) HotAloof(ctx context.Context) *Batch {
	if d.Shared {
		return d.Hot(ctx)
	}
	return d.GuardedFor(ctx, HeldLimit)
}

// InAloofTx runs a function in a transaction over such a connection.
func (d *DB) InAloofTx(ctx context.Context, do func(pgx.Tx) error) error {
	if d.Shared {
		d.Sparing.Enter(ctx, HotWait)
		defer d.Sparing.Leave()
	}
	return InTx(ctx, d.Aloof(), do)
}

// InTx runs a function in a transaction. It is read committed, whatever the default of the
// role or the database: a statement that waited for a lock must see what its previous holder
// has committed.
func InTx(ctx context.Context, pool *pgxpool.Pool, do func(pgx.Tx) error) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		know(conn.Conn().TypeMap())
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: beginPinned}, do)
	})
}

// Send sends the batch and calls back for each statement. Outside a
// transaction a nil error means that all of it has been committed, and where the
// server's default is another isolation it begins a read committed one, as InTx
// does. A batch that never left this machine is sent once more, on another connection.
func (d *DB) Send(ctx context.Context, to Sender, b *Batch) error {
	if to == Sender(d.Engine) {
		d.Sparing.Enter(ctx, HotWait)
		defer d.Sparing.Leave()
	}
	return d.sendTo(ctx, to, b)
}

// sendTo is send for a call that has entered already.
func (d *DB) sendTo(ctx context.Context, to Sender, b *Batch) error {
	pool, alone := to.(*pgxpool.Pool)
	first, again := &b.Batch, b.again
	switch {
	case alone && (d.begins || d.free(pool)):
		again = func() *pgx.Batch { return d.whole(b, pool) }
		first = again()
	case b.Rewritten: // for one connection; it may be sent over another
		first = again()
	}
	err := d.sent(ctx, to, first).Close()
	if alone && err != nil && pgconn.SafeToRetry(err) && ctx.Err() == nil {
		err = d.sent(ctx, to, again()).Close()
	}
	return err
}

func (d *DB) sent(ctx context.Context, to Sender, b *pgx.Batch) pgx.BatchResults {
	if pool, alone := to.(*pgxpool.Pool); alone && d.Shared && pool == d.General {
		return lend(ctx, pool, b)
	}
	return to.SendBatch(ctx, b)
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

// lend sends a batch on a connection of a pool that may be the caller's.
func lend(ctx context.Context, pool *pgxpool.Pool, b *pgx.Batch) pgx.BatchResults {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return failedBatch{err}
	}
	know(conn.Conn().TypeMap())
	return &lentBatch{conn.SendBatch(ctx, b), conn}
}

// lentBatch gives the connection back when it is closed.
type lentBatch struct {
	pgx.BatchResults
	conn *pgxpool.Conn
}

// Close ends the batch.
func (l *lentBatch) Close() error {
	err := l.BatchResults.Close()
	if l.conn != nil {
		l.conn.Release()
		l.conn = nil
	}
	return err
}

// failedBatch is a batch that got no connection.
type failedBatch struct{ err error }

// Exec says why.
func (f failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, f.err }

// Query says why.
func (f failedBatch) Query() (pgx.Rows, error) { return nil, f.err }

// QueryRow says why.
func (f failedBatch) QueryRow() pgx.Row { return wrappedRow{nil, f.err} }

// Close says why.
func (f failedBatch) Close() error { return f.err }

// beginPinned is one message. The connection may have been pinned as a whole.
const beginPinned = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL search_path = " + pinnedPath

var (
	_ Sender = (*pgxpool.Pool)(nil)
	_ Sender = (pgx.Tx)(nil)
)

// Tx is none.
func (failedBatch) Tx() pgx.Tx { return nil }
