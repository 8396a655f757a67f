// Package witness knows which connections of a store have been open since a claim was made.
//
// A claim is settled in parts, and the last part ends its lease. The database need not look
// for other runs of the claim that are still running if the worker knows that it has settled
// them: that would cost an index probe for each. But after a failover that lost the earlier
// settles, those runs are running again. Without the lease nothing would expire, and no
// worker would take them over.
//
// A failover, a crash of the server and a restore all end every connection. So what a worker
// knows counts only over a connection that was open before the claim was made: it is a
// witness of all that was acknowledged since. Over any other connection the statement reads
// the runs.
package witness

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// Connections numbers the connections of a pool, and remembers how many there had been when
// a claim was made. The zero value is ready to use.
type Connections struct {
	opened atomic.Int64

	mu     sync.Mutex
	claims map[[16]byte]int64
}

// most bounds the claims that are remembered. Beyond it all are forgotten: they then have no witness.
const most = 10_000

// key is that of a connection's number among its custom data.
const key = "durable.number"

// Number numbers a connection that has just been opened. One without a number is no
// witness: behind a pooler the server may be another one at any time, and a connection to a
// standby may outlive the standby's promotion.
func (c *Connections) Number(conn *pgx.Conn) {
	conn.PgConn().CustomData()[key] = c.opened.Add(1)
}

// Opened is how many connections have been numbered. Read it before you send a claim.
func (c *Connections) Opened() int64 { return c.opened.Load() }

// Made remembers a claim that was sent when so many connections had been numbered.
func (c *Connections) Made(claim [16]byte, opened int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.claims) >= most || c.claims == nil {
		c.claims = map[[16]byte]int64{}
	}
	c.claims[claim] = opened
}

// Of returns what Made recorded of a claim; zero: nothing, so it has no witness.
func (c *Connections) Of(claim [16]byte) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claims[claim]
}

// Over forgets a claim.
func (c *Connections) Over(claim [16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.claims, claim)
}

// Argument is an argument of a statement that only a witness may be given. pgx asks for the
// arguments when it has a connection. The statement's arguments follow it.
type Argument struct {
	Opened int64 // connections when the claim was sent, as Of returns it
	At     int   // the position of the argument
	Else   any   // what other connections are given
}

// RewriteQuery replaces the argument if the connection is no witness.
func (a Argument) RewriteQuery(_ context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	number, known := conn.PgConn().CustomData()[key].(int64)
	if known && number <= a.Opened {
		return sql, args, nil
	}
	args = slices.Clone(args)
	args[a.At] = a.Else
	return sql, args, nil
}
