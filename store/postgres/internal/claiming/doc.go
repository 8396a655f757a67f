// Package claiming gives due runs of a PostgreSQL store to workers.
//
// A worker asks for the lanes that it serves, each with its first waiting run (Heads). From that it
// plans steps: from which lane it takes how many runs. A claim is one statement: it deletes the
// rows of these runs from the narrow queue table, starts the runs, and writes one lease for all of
// them. The rows come back in no order, so they are dealt out to the steps again (steps.go).
//
// The id of a claim is the worker's, so that a claim may be repeated. A repeat cannot insert the
// lease again, and returns what the first one was given (granted). If the answer to a claim never
// arrives, HandBack takes it back: it inserts a lease that refuses the claim, for the case that it
// is still under way, and hands back the runs it was given. No handler begins before the claim is
// durable.
//
// A claim does not wait long for others. It uses a statement that waits for a transaction which
// holds the row of a run, because that is the cheaper one and such transactions are rare. Once it
// has met one, claims skip held rows for a while.
//
// Three neighbours take part:
//
//   - A claim of limited runs is an admission; see package admission. Runs of capped queues that a
//     claim would take are moved into the lines of their caps first (caps.go).
//   - Settles that wait for this claim travel with it (joined.go); see package settling.
//   - Rows of the queue table that name no pending run are dropped, and the log says which.
package claiming

import (
	"github.com/durable-worker/durable-worker/internal/board"
	"github.com/durable-worker/durable-worker/store/postgres/internal/admission"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
	"github.com/durable-worker/durable-worker/store/postgres/internal/settling"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// Claimer claims runs for workers.
type Claimer struct {
	db       *conn.DB
	schema   *schema.Schema
	numbers  *numbers.Numbers
	wake     *wake.Waker
	settler  *settling.Settler
	admitter *admission.Admitter

	held   conn.Lately  // when a claim last gave up waiting for the row of a run
	capped board.Capped // the lanes whose runs claims move into the lines of caps
}

// New returns the claimer of a store. Limited runs are started by the admitter, which has to
// share its settler.
func New(db *conn.DB, schema *schema.Schema, numbers *numbers.Numbers, wake *wake.Waker, settler *settling.Settler, admitter *admission.Admitter) *Claimer {
	return &Claimer{db: db, schema: schema, numbers: numbers, wake: wake, settler: settler, admitter: admitter}
}
