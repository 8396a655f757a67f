// Package reading answers what people ask about a store on PostgreSQL: which runs there are and
// how many, why one of them waits, what workers do, what was changed and by whom.
//
// None of it changes a row. The questions go over connections of their own (see conn.DB.Reading),
// which are read-only, so that operators and workers never wait for each other. Two kinds of
// callers are exceptions: a worker, or a caller that waits for a run, reads that run over the
// general pool; and a transaction of the caller's reads runs as it sees them.
//
// A table of runs may have a billion rows, and most questions have no index of their own, because
// each index would make every enqueue and every settle dearer. So each answer has a bound on the
// work behind it, and says when it has met that bound:
//
//   - A list examines a bounded number of runs (list.go). A page that ends at the bound says how
//     many runs it has examined and where the next one continues. Of the ways to find runs it
//     takes the cheapest: the ids that are given, the index of a key or a schedule, the narrow
//     tables of unfinished or of dead and cancelled runs, or else the key of all runs.
//   - A count is exact up to a bound, and beyond it an estimate, marked as one (count.go). It is
//     estimated from what the last vacuum has left, or from a sample of the table's pages. Numbers
//     that cannot be estimated are lower bounds, and marked as such.
//   - A person waits no longer than inspectLimit. The server cancels the statement then.
//
// Facts (facts.go) reads all that decides about one run in one round trip. What follows from it
// is not decided here, but in internal/rules, as in all stores.
package reading

import (
	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
)

// Reader answers questions about a store.
type Reader struct {
	db      *conn.DB
	schema  *schema.Schema
	numbers *numbers.Numbers
	tally   *admit.Tally // of this process
}

// New returns the reader of a store. The tally is that of the process's admissions.
func New(db *conn.DB, schema *schema.Schema, numbers *numbers.Numbers, tally *admit.Tally) *Reader {
	return &Reader{db, schema, numbers, tally}
}
