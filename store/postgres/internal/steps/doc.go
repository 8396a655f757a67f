// Package steps keeps what handlers record of themselves, and what runs are sent.
//
// A step is a row of its own, known by (run, name), and stored only while its run is running
// under the claim of the handler: the statement locks the run with SKIP LOCKED, so that neither
// a settle nor a reclaim comes in between. Steps of many runs are stored together, and one that
// cannot be stored stops no other (record.go).
//
// A run that waits is a run that is due later. The wait is a step with the instant at which it
// ends, and the handler's outcome makes the run due then, as a snooze does. So every statement
// about pending runs, every page and every bound knows it already. An input that comes earlier
// makes the run due now. Who sends one may not lock the run, as the sender's transaction may
// stay open for long: it leaves a notice instead (send.go).
//
// A release takes the notices that are due, locks their runs, and decides in a later statement
// of the same transaction, whose snapshot shows all that was committed before the locks
// (release.go). A notice is deleted only if the run is pending or has ended:
//
//   - a pending run that waits for the input becomes due now;
//   - a pending run that does not wait for it reads it when it is executed next;
//   - a run that is executing may be about to wait: its notice is put back;
//   - a run that another transaction has locked likewise.
//
// So no input is missed, whatever dies. A worker whose run has just begun to wait asks for a
// look of its own, so that the notice that was put back does not set the pace.
package steps

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
)

// Waker is what the room needs of its neighbours: to have workers woken.
type Waker interface {
	// Released wakes workers for runs of a lane that have become due.
	Released(lane int32, limited bool, runs int)
	// Noticed has a worker release a run that was sent an input.
	Noticed(ctx context.Context, run store.RunID)
	// Freed wakes workers for the places that cancelled runs have freed.
	Freed(lines []store.LineID)
	// CancelRequested notifies the workers of runs whose cancellation was requested.
	CancelRequested(ctx context.Context)
}

// Steps is the room. Its methods may be called from many goroutines.
type Steps struct {
	db     *conn.DB
	schema *schema.Schema
	wake   Waker
	mark   mark
}

// New returns the steps of a database.
func New(db *conn.DB, schema *schema.Schema, wake Waker) *Steps {
	return &Steps{db: db, schema: schema, wake: wake}
}
