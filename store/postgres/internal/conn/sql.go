package conn

import (
	"context"
	"hash/fnv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// DefaultSchema is the schema that the statements name as they are written.
const DefaultSchema = "durable"

// Namespace rewrites statements for a schema of another name, each once.
type Namespace struct {
	Schema string
	texts  sync.Map // statement as generated -> statement as sent
}

// sql returns the statement as it is sent.
func (n *Namespace) sql(text string) string {
	if n.Schema == DefaultSchema {
		return text
	}
	if known, ok := n.texts.Load(text); ok {
		return known.(string) //nolint:forcetypeassert // only strings are stored
	}
	renamed := n.Rename(text)
	n.texts.Store(text, renamed)
	return renamed
}

// Rename writes a statement for the schema.
func (n *Namespace) Rename(text string) string {
	return strings.ReplaceAll(text, DefaultSchema+".", `"`+n.Schema+`".`)
}

// Channel is what workers listen on.
func (n *Namespace) Channel() string { return n.Schema + "_wake" }

// FreedChannel is what those who wait for locks listen on.
func (n *Namespace) FreedChannel() string { return n.Schema + "_freed" }

// Key makes the number of an advisory lock.
func (n *Namespace) Key(purpose string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("durable/" + n.Schema + "/" + purpose))
	return int64(h.Sum64()) //nolint:gosec // any 64 bits will do
}

// named is a connection, a pool or a transaction that speaks our schema.
type named struct {
	db    queries.DBTX
	names *Namespace
}

func (n named) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return n.db.Exec(ctx, n.names.sql(sql), args...)
}

func (n named) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return n.db.Query(ctx, n.names.sql(sql), args...)
}

func (n named) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return n.db.QueryRow(ctx, n.names.sql(sql), args...)
}

// Batch is statements sent together. Outside a transaction they are one.
type Batch struct {
	pgx.Batch
	Names     *Namespace
	Rewritten bool // the connection decides about an argument
}

// Add adds a statement. pgx writes a UUID that it does not know as its own by way of
// its text, which takes twenty times as long.
func (b *Batch) Add(sql string, args ...any) *pgx.QueuedQuery {
	for i := range args {
		if id, is := args[i].(uuid.UUID); is {
			args[i] = pgtype.UUID{Bytes: id, Valid: true}
		}
	}
	return b.Queue(b.Names.sql(sql), args...)
}

// How long a statement may wait for a lock, and take, when its context does
// not say less.
const (
	LockLimit      = 5 * time.Second
	statementLimit = 30 * time.Second
	HeldLimit      = 200 * time.Millisecond // for rows that others rarely lock, where there is another way
)

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

// Hot begins a batch as guardedFor does with heldLimit, for the engine's
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
	deadline, ok := ctx.Deadline()
	return d.guards && ok && time.Until(deadline) >= sessionPatience
}

// A session's guard bounds statements by sessionLimit, and will do for calls that
// are waited for at least sessionPatience.
const (
	sessionLimit    = 16 * time.Second
	sessionPatience = 8 * time.Second
)

// guardSession guards a connection of the engine's as a whole, and numbers it unless it leads
// to a standby.
func (d *DB) guardSession(ctx context.Context, conn *pgx.Conn) error {
	standby, err := d.Queries(conn).GuardSession(ctx, queries.GuardSessionParams{LockTimeout: Milliseconds(HeldLimit), StatementTimeout: Milliseconds(sessionLimit)})
	if err == nil && !standby {
		d.Connections.Number(conn)
	}
	return err
}

// Limits derives the server's timeouts from the caller's patience, so that a
// statement without a waiting caller does not continue.
func Limits(ctx context.Context, most time.Duration) (lock, statement string) {
	l, t := most, statementLimit
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		l, t = min(l, left/2), min(t, left+time.Second)
	}
	return Milliseconds(l), Milliseconds(t)
}

// WaitsLess reports whether the caller waits for less than this long.
func WaitsLess(ctx context.Context, than time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	return bounded && time.Until(deadline) < than
}

// orQuarter returns a quarter of the time that the caller still waits, if that is less than most.
func orQuarter(ctx context.Context, most time.Duration) time.Duration {
	if deadline, bounded := ctx.Deadline(); bounded {
		most = min(most, time.Until(deadline)/4)
	}
	return most
}

// again copies the batch: one that was sent remembers what its connection had
// prepared.
func (b *Batch) again() *pgx.Batch {
	again := &pgx.Batch{}
	b.copyTo(again)
	return again
}

func (b *Batch) copyTo(to *pgx.Batch) {
	for _, query := range b.QueuedQueries {
		to.Queue(query.SQL, query.Arguments...).Fn = query.Fn
	}
}

// beginPinned is one message. The connection may have been pinned as a whole.
const beginPinned = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL search_path = " + pinnedPath

// InTx runs a function in a transaction. It is read committed, whatever the default of the
// role or the database: a statement that waited for a lock must see what its previous holder
// has committed.
func InTx(ctx context.Context, pool *pgxpool.Pool, do func(pgx.Tx) error) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		know(conn.Conn().TypeMap())
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: beginPinned}, do)
	})
}

// Aloof is the pool whose connections no caller holds. If the general pool is the caller's,
// all of its connections may belong to transactions that wait for this very call.
func (d *DB) Aloof() *pgxpool.Pool {
	if d.Shared {
		return d.Engine
	}
	return d.General
}

// InAloofTx runs a function in a transaction over such a connection.
func (d *DB) InAloofTx(ctx context.Context, do func(pgx.Tx) error) error {
	if d.Shared {
		d.Sparing.Enter(ctx, HotWait)
		defer d.Sparing.Leave()
	}
	return InTx(ctx, d.Aloof(), do)
}

// Sender is a pool or a transaction.
type Sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

var (
	_ Sender = (*pgxpool.Pool)(nil)
	_ Sender = (pgx.Tx)(nil)
)

// Send sends the batch and calls back for each statement. Outside a
// transaction a nil error means that all of it has been committed, and where the
// server's default is another isolation it begins a read committed one, as inTx
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

// Lately is an instant on this process's monotonic clock, or none.
type Lately struct{ at atomic.Int64 }

// Mark sets it to the present.
func (l *Lately) Mark() { l.at.Store(int64(lease.Elapsed())) }

// Within reports whether it is less than d ago.
func (l *Lately) Within(d time.Duration) bool {
	at := l.at.Load()
	return at != 0 && int64(lease.Elapsed())-at < int64(d)
}
