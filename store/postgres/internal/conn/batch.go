package conn

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/durable-worker/durable-worker/lease"
)

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

// Lately is an instant on this process's monotonic clock, or none.
type Lately struct{ at atomic.Int64 }

// Mark sets it to the present.
func (l *Lately) Mark() { l.at.Store(int64(lease.Elapsed())) }

// Within reports whether it is less than d ago.
func (l *Lately) Within(d time.Duration) bool {
	at := l.at.Load()
	return at != 0 && int64(lease.Elapsed())-at < int64(d)
}

// Sender is a pool or a transaction.
type Sender interface {
	// SendBatch sends statements; what it returns has to be closed.
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// How long a statement may wait for a lock, and take, when its context does
// not say less.
const (
	LockLimit      = 5 * time.Second
	statementLimit = 30 * time.Second
	HeldLimit      = 200 * time.Millisecond // for rows that others rarely lock, where there is another way
)

// A session's guard bounds statements by sessionLimit, and will do for calls that
// are waited for at least sessionPatience.
const (
	sessionLimit    = 16 * time.Second
	sessionPatience = 8 * time.Second
)

// HeldFor is how long claims and settles skip runs whose rows other transactions hold, after
// they have met one.
const HeldFor = 10 * time.Second
