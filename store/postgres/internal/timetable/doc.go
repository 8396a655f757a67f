// Package timetable makes runs of schedules in a PostgreSQL store, and changes schedules for
// operators and programs.
//
// Every worker asks now and then when the next schedule is due, in one statement that locks
// nothing. If one is, a transaction evaluates those that are due (Materialize). An advisory lock
// that ends with the transaction keeps workers from doing the same work; who does not get it
// learns that others evaluate. While more schedules are due than one transaction takes, there are
// two such locks, and each process remembers how far in the index it has come (duebacklog.go).
//
// What happens to a schedule is decided by the caller, outside of this package, from the rule, the
// plan and the runs that have not ended. The row of the schedule is locked meanwhile, so the
// occurrence and the advance of the schedule are stored together or not at all: an occurrence
// becomes one run, whatever fails in between.
//
// One schedule must not stop the others. Three things ensure that:
//
//   - A text that cannot be read, and a lane or a limit that cannot be used, are faults of that
//     schedule: it stays where it is, and its row says why.
//   - When the database refuses to store decisions, the halves of them are tried, down to each
//     schedule by itself (storeHalves). One that is refused alone rests with a fault, if another
//     one was taken: then it is to blame, and not the database.
//   - When a transaction fails as a whole and does not show whose fault that is, ever fewer
//     schedules are tried (narrowed). One that remains is set aside for a while in the memory of
//     this process, since a change of its row may be refused too.
//
// Operators change one schedule at a time, in a transaction that locks its row and writes what was
// done into the audit (change.go). Programs put schedules of their own, in such a transaction or in
// one that is theirs (put.go). Both use the connections of those who enqueue, never those of
// workers.
package timetable

import (
	"github.com/durable-worker/durable-worker/internal/aside"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// Timetable is the schedules of a store.
type Timetable struct {
	db      *conn.DB
	schema  *schema.Schema
	numbers *numbers.Numbers
	wake    *wake.Waker

	backlog dueBacklog
	resting aside.Set[string] // schedules that could not be advanced
	specs   specs
}

// New returns the timetable of a store.
func New(db *conn.DB, schema *schema.Schema, numbers *numbers.Numbers, wake *wake.Waker) *Timetable {
	return &Timetable{db: db, schema: schema, numbers: numbers, wake: wake}
}
