// Package settling writes the outcomes of runs that were claimed from a PostgreSQL store.
//
// A settle names a claim, some of its runs and what became of each. It changes only rows that are
// running under that claim: once another worker has taken over a run, nothing of the late outcome
// is stored. So a settle may be repeated, and may overtake its original. What the writes have not
// touched is examined afterwards (judge): either an earlier write has landed, or the run is no
// longer the claim's.
//
// Which statement is sent depends on the settle, since there is one for each claim:
//
//   - the last few runs of a claim that have plainly succeeded: one statement, which also ends the
//     lease (SettleLast, and SettleWhole for limited claims)
//   - other plain successes: their ids alone (SettleSuccesses)
//   - everything else: a map of outcomes (SettleRuns, SettleLimited)
//
// Locks are taken in the same order everywhere: leases of limited claims, then runs in the order
// of their claims, then permits. The places that limited runs had are released last, since a
// transaction that waits for a run while it holds permits may wait forever.
//
// Three things must not keep a settle from being stored, because what a handler has done is done:
//
//   - The database refuses the data of one run: then run by run, and a fixed text replaces what
//     could not be stored (each.go).
//   - It refuses the statement for plain successes: then the general one.
//   - Another transaction holds the row of a run: then the others are settled around it, and that
//     one is deferred; its claim keeps its lease (held.go). For a while after that, settles go
//     around held rows from the start.
//
// A settle may wait a few milliseconds and travel with the next claim of its process: one
// transaction and one commit instead of two. There are two reasons to wait. A worker that claims
// often has announced its next claim (joined.go). Or runs wait for the places that the settle
// frees; then it wakes a worker, and both become a transaction that hands the places on
// (handing.go). The claim takes what waits (TakeJoined, TakeHandOns), adds its statements, and
// answers. A settle that meets no claim in time is sent on its own.
package settling

import (
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// Settler writes outcomes.
type Settler struct {
	db     *conn.DB
	schema *schema.Schema
	wake   *wake.Waker

	stuck   conn.Lately // when a settle last gave up waiting for the row of a run
	joins   joining     // settles that wait for the next claim
	handing handing     // those that free places for which runs wait
}

// New returns the settler of a store.
func New(db *conn.DB, schema *schema.Schema, wake *wake.Waker) *Settler {
	s := &Settler{db: db, schema: schema, wake: wake}
	s.HandOnWithin(handWait, handFor)
	return s
}
