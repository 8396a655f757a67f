package postgres

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

	"github.com/durable-worker/durable-worker/db"
	"github.com/durable-worker/durable-worker/internal/sqlwords"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const defaultSchema = "durable"

// words are those of db/words.sql. It panics where the file is not what the tests have seen.
var words = sync.OnceValue(func() sqlwords.Words { //nolint:gochecknoglobals // read once from the program itself
	words, err := sqlwords.Parse(db.Words)
	if err != nil {
		panic("postgres: words.sql: " + err.Error())
	}
	return words
})

// namespace rewrites statements, each once: it spells their words out, and names the schema.
type namespace struct {
	schema string
	texts  sync.Map // statement as generated -> statement as sent
}

// sql returns the statement as it is sent.
func (n *namespace) sql(text string) string {
	if known, ok := n.texts.Load(text); ok {
		return known.(string) //nolint:forcetypeassert // only strings are stored
	}
	sent := words().SpellOut(text)
	if n.schema != defaultSchema {
		sent = n.rename(sent)
	}
	n.texts.Store(text, sent)
	return sent
}

func (n *namespace) rename(text string) string {
	return strings.ReplaceAll(text, defaultSchema+".", `"`+n.schema+`".`)
}

// channel is what workers listen on.
func (n *namespace) channel() string { return n.schema + "_wake" }

// freedChannel is what those who wait for locks listen on.
func (n *namespace) freedChannel() string { return n.schema + "_freed" }

// key makes the number of an advisory lock.
func (n *namespace) key(purpose string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("durable/" + n.schema + "/" + purpose))
	return int64(h.Sum64()) //nolint:gosec // any 64 bits will do
}

// named is a connection, a pool or a transaction that speaks our schema.
type named struct {
	db    queries.DBTX
	names *namespace
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

// batch is statements sent together. Outside a transaction they are one.
type batch struct {
	pgx.Batch
	names     *namespace
	rewritten bool // the connection decides about an argument
}

// add adds a statement. pgx writes a UUID that it does not know as its own by way of
// its text, which takes twenty times as long.
func (b *batch) add(sql string, args ...any) *pgx.QueuedQuery {
	for i := range args {
		if id, is := args[i].(uuid.UUID); is {
			args[i] = pgtype.UUID{Bytes: id, Valid: true}
		}
	}
	return b.Queue(b.names.sql(sql), args...)
}

// How long a statement may wait for a lock, and take, when its context does
// not say less.
const (
	lockLimit      = 5 * time.Second
	statementLimit = 30 * time.Second
	heldLimit      = 200 * time.Millisecond // for rows that others rarely lock, where there is another way
)

// guarded begins a batch whose statements keep to their indexes.
func (s *Store) guarded(ctx context.Context) *batch { return s.guardedFor(ctx, lockLimit) }

// guardedFor is guarded with a bound of its own on waits for locks.
func (s *Store) guardedFor(ctx context.Context, most time.Duration) *batch {
	b := &batch{names: s.names}
	lock, statement := limits(ctx, most)
	b.add(queries.Guard, lock, statement)
	return b
}

// hot begins a batch as guardedFor does with heldLimit, for the engine's
// connections. Where those are guarded as a whole and the caller's patience is no
// shorter than theirs, nothing has to be set.
func (s *Store) hot(ctx context.Context) *batch {
	if s.guardsFor(ctx) {
		return &batch{names: s.names}
	}
	return s.guardedFor(ctx, heldLimit)
}

// guardsFor reports whether the guard of the engine's connections will do for a call.
func (s *Store) guardsFor(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return s.guards && ok && time.Until(deadline) >= sessionPatience
}

// A session's guard bounds statements by sessionLimit, and will do for calls that
// are waited for at least sessionPatience.
const (
	sessionLimit    = 16 * time.Second
	sessionPatience = 8 * time.Second
)

// guardSession guards a connection of the engine's as a whole, and numbers it unless it leads
// to a standby.
func (s *Store) guardSession(ctx context.Context, conn *pgx.Conn) error {
	standby, err := s.queries(conn).GuardSession(ctx, queries.GuardSessionParams{LockTimeout: milliseconds(heldLimit), StatementTimeout: milliseconds(sessionLimit)})
	if err == nil && !standby {
		s.connections.Number(conn)
	}
	return err
}

// limits derives the server's timeouts from the caller's patience, so that a
// statement without a waiting caller does not continue.
func limits(ctx context.Context, most time.Duration) (lock, statement string) {
	l, t := most, statementLimit
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		l, t = min(l, left/2), min(t, left+time.Second)
	}
	return milliseconds(l), milliseconds(t)
}

// waitsLess reports whether the caller waits for less than this long.
func waitsLess(ctx context.Context, than time.Duration) bool {
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
func (b *batch) again() *pgx.Batch {
	again := &pgx.Batch{}
	b.copyTo(again)
	return again
}

func (b *batch) copyTo(to *pgx.Batch) {
	for _, query := range b.QueuedQueries {
		to.Queue(query.SQL, query.Arguments...).Fn = query.Fn
	}
}

// beginPinned is one message. The connection may have been pinned as a whole.
const beginPinned = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL search_path = " + pinnedPath

// inTx runs a function in a transaction. It is read committed, whatever the default of the
// role or the database: a statement that waited for a lock must see what its previous holder
// has committed.
func inTx(ctx context.Context, pool *pgxpool.Pool, do func(pgx.Tx) error) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		know(conn.Conn().TypeMap())
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: beginPinned}, do)
	})
}

// sender is a pool or a transaction.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

var (
	_ sender = (*pgxpool.Pool)(nil)
	_ sender = (pgx.Tx)(nil)
)

// send sends the batch and calls back for each statement. Outside a
// transaction a nil error means that all of it has been committed, and where the
// server's default is another isolation it begins a read committed one, as inTx
// does. A batch that never left this machine is sent once more, on another connection.
func (s *Store) send(ctx context.Context, to sender, b *batch) error {
	if to == sender(s.engine) {
		s.sparing.enter(ctx, hotWait)
		defer s.sparing.leave()
	}
	return s.sendTo(ctx, to, b)
}

// sendTo is send for a call that has entered already.
func (s *Store) sendTo(ctx context.Context, to sender, b *batch) error {
	pool, alone := to.(*pgxpool.Pool)
	first, again := &b.Batch, b.again
	switch {
	case alone && (s.begins || s.free(pool)):
		again = func() *pgx.Batch { return s.whole(b, pool) }
		first = again()
	case b.rewritten: // for one connection; it may be sent over another
		first = again()
	}
	err := s.sent(ctx, to, first).Close()
	if alone && err != nil && pgconn.SafeToRetry(err) && ctx.Err() == nil {
		err = s.sent(ctx, to, again()).Close()
	}
	return err
}

func (s *Store) sent(ctx context.Context, to sender, b *pgx.Batch) pgx.BatchResults {
	if pool, alone := to.(*pgxpool.Pool); alone && s.shared && pool == s.general {
		return lend(ctx, pool, b)
	}
	return to.SendBatch(ctx, b)
}

// lately is an instant on this process's monotonic clock, or none.
type lately struct{ at atomic.Int64 }

func (l *lately) mark() { l.at.Store(int64(lease.Elapsed())) }

func (l *lately) within(d time.Duration) bool {
	at := l.at.Load()
	return at != 0 && int64(lease.Elapsed())-at < int64(d)
}
