// Package admission starts limited runs of a PostgreSQL store in the places and starts that their
// limits have.
//
// A limited run waits in the line of a gate, which is one key of one limit. When places of a gate
// may be free, a turn is stored for it. A worker claims limited runs by taking turns: it locks the
// gates that they name, decides with internal/admit which waiters may start, and writes the
// decision. While it holds a gate no other worker decides about it, so that no limit is exceeded;
// gates that another worker has locked are left to that one.
//
// An admission is one transaction of two round trips. The first takes the turns, locks their gates,
// and reads what these admit and the first waiters of their lines. The second writes: waiters leave
// their lines, permits and rates are stored, runs start under the claim, and turns are left for
// what may still be admitted. A round trip is added where runs need more than one gate (more.go),
// or where lines wait in rounds because one gate is shared by many (rounds.go).
//
// Order of locks: turns, gates, waiters, runs. Of several gates, those are taken whose locks are
// free; none is waited for. An admission assumes that no other transaction holds the rows of its
// waiters. If one does, the admission begins again, and for a while each one checks that first.
//
// Two shortcuts avoid work, and neither is trusted with a conclusion:
//
//   - Marks (marks.go) remember where long lines begin, because the index of waiters begins with
//     all that has left them since the last vacuum. A line that looks short from its mark on is
//     read again from its beginning, and every line is from time to time.
//   - While runs wait for the places that others leave, the settle that frees places and the claim
//     that fills them are sent in one transaction (hand_on.go), by one statement that knows only
//     runs which say no more than their gate. An admission decides about all others, at least
//     every fifty milliseconds.
//
// Code outside of runs asks the same gates for places and starts (limituse.go). Caps of queues are
// limits: an admission adds them to waiters that do not have them yet (adopt.go).
//
// The types of an admission follow its path: Admitter starts one, admission carries it out with
// what it has read, and Dealing is what the claim gets.
package admission

import (
	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
	"github.com/durable-worker/durable-worker/store/postgres/internal/settling"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// Admitter admits limited runs.
type Admitter struct {
	// Tally counts what the admissions of this process have decided.
	Tally admit.Tally

	db      *conn.DB
	schema  *schema.Schema
	numbers *numbers.Numbers
	wake    *wake.Waker
	settler *settling.Settler

	heldWaiters conn.Lately // when an admission met a waiter that another transaction had in hand
	marks       marks
}

// New returns the admitter of a store.
func New(db *conn.DB, schema *schema.Schema, numbers *numbers.Numbers, wake *wake.Waker, settler *settling.Settler) *Admitter {
	return &Admitter{db: db, schema: schema, numbers: numbers, wake: wake, settler: settler}
}
