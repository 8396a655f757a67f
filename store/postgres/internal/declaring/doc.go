// Package declaring stores in PostgreSQL what programs and operators say about jobs, limits, queues
// and workers.
//
// A worker declares itself, its jobs, its schedules and its limits when it starts, and now and then
// again (declare.go). A declaration replaces what other programs have declared under the same name,
// but not what an operator has edited. It is one transaction for jobs and schedules, and one before
// it for limits. What the database refuses is declared in halves, so that one job, schedule or limit
// that is refused stops no other; the caller learns what was set aside, and when to try again.
//
// Limits have two rules of their own. They are not declared while a worker is alive whose program
// does not know limits, since it would execute limited runs without them. And after a change was
// committed, a turn is stored for each gate that has waiters: the change may admit some of them.
//
// Operators change limits and queues (limit_change.go, queues.go) in transactions that lock the row,
// write what was done into the audit, and wait no longer than a person does. A paused queue is
// marked in its lanes too, because claims look at nothing else; the queue is locked before its
// lanes and its cap, as by those who make lanes.
//
// Workers report what they are and did (report.go), in one statement each time.
package declaring

import (
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// Declarer stores declarations, and changes of limits and queues.
type Declarer struct {
	db      *conn.DB
	schema  *schema.Schema
	numbers *numbers.Numbers
	wake    *wake.Waker
}

// New returns the declarer of a store.
func New(db *conn.DB, schema *schema.Schema, numbers *numbers.Numbers, wake *wake.Waker) *Declarer {
	return &Declarer{db, schema, numbers, wake}
}
