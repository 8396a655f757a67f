// Package enqueue stores new runs in PostgreSQL, each with its place in a line.
//
// An enqueue is one transaction, and mostly one statement and one round trip. Which statement it
// sends depends on what the runs have in common, because an enqueue is what a program calls most:
//
//   - Runs that differ in nothing but their ids and args are sent as one row of common values and
//     two arrays (EnqueueNew). The statement assumes that none of them is stored yet; if one is,
//     the call is repeated with a statement that skips those (EnqueueAlike).
//   - Other runs are sent as columns, one array for each (EnqueueRuns). Calls of many runs are cut
//     into statements of a bounded size.
//   - Limited runs get their gates, and a place in the line of one of them (EnqueueLimited).
//   - Runs with unique keys (keys.go) need the rows of their keys first. If the keys are free, one
//     statement does it all (keys_new.go). Otherwise a keyedInsert locks the keys in the order of
//     their names, reads which runs hold them, decides, takes the pending runs that are to be
//     replaced out of their lines, and writes. It begins again if a holder has changed meanwhile.
//
// An enqueue is repeatable: the caller has made the ids, and a run that is stored already is
// answered as existing. An answer is given only after the runs are durable, also where the
// transaction has found all of them and so has written nothing (seal).
//
// The lanes and the limits of the runs are found, and made, before a transaction begins; see
// package numbers. Wake-ups travel with the transaction or follow it; see package wake. Nothing
// depends on their arrival.
//
// The same work is done in three settings: in a transaction of the store's own (Enqueue), in one
// of the caller's (In), whose isolation and limits then apply, and in one that succeeds only while
// the caller's run is still its own (EnqueueUnder). The timetable uses this package's columns
// for the runs of schedules.
package enqueue

import (
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// Enqueuer stores new runs.
type Enqueuer struct {
	db      *conn.DB
	schema  *schema.Schema
	numbers *numbers.Numbers
	wake    *wake.Waker
}

// New returns the enqueuer of a store.
func New(db *conn.DB, schema *schema.Schema, numbers *numbers.Numbers, wake *wake.Waker) *Enqueuer {
	return &Enqueuer{db, schema, numbers, wake}
}
