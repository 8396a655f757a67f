// Package leases keeps the leases of a PostgreSQL store: workers renew theirs, and take back the
// runs of those that have expired.
//
// Every claim has a lease, which says until when its runs are its worker's. Renew extends the
// leases of a process. Many of them expire together: they follow a beat, one row that says when
// all of its followers expire, so that a heartbeat writes one row for thousands of runs (beats.go).
// The store reports each time what follows the beat, and a lease that is gone is not among it. If
// the beat cannot be written, each lease is renewed in a row of its own. Renewals go over
// connections that nothing else uses.
//
// Reclaim asks in one statement without locks whether a lease has expired. If so, it requeues the
// runs of such leases, or ends those that have crashed too often, as internal/rules decides. A
// lease whose runs other transactions hold does not hide those behind it: the next round looks
// past it. What the database refuses to requeue is tried one lease at a time, and then in halves,
// down to the single run (each.go); that one is set aside for a while, in the memory of this
// process.
//
// The clock of the database decides. When it was set back, leases that were granted before reach
// too far into the future; once a minute they are clamped. When another server answers than the
// caller knows, nothing is reclaimed, and what this process remembers of rows is forgotten.
package leases

import (
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/aside"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// Leases renews leases, and takes back the runs of expired ones.
type Leases struct {
	db     *conn.DB
	schema *schema.Schema
	wake   *wake.Waker
	forget func() // what is remembered of rows

	together beatCache
	clamped  atomic.Int64         // when leases were last clamped, on this process's monotonic clock
	aside    aside.Set[uuid.UUID] // leases and runs that Reclaim could not change
}

// New returns the leases of a store. When another server answers, they call forget: its rows may
// have other numbers.
func New(db *conn.DB, schema *schema.Schema, wake *wake.Waker, forget func()) *Leases {
	return &Leases{db: db, schema: schema, wake: wake, forget: forget}
}
