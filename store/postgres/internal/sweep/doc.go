// Package sweep deletes what a PostgreSQL store keeps no longer, and mends what only a change by
// hand or a defect can cause.
//
// A sweep is made in small steps, of which one process at a time makes one: an advisory lock that
// ends with the transaction, and a tenure in the database, keep the others away. Before it locks
// anything, a step asks whether there is anything to look at, as mostly there is not.
//
// There are two ways through the table of runs, since it has no index by age or by state:
//
//   - The walk follows the ids, which begin with the instant that they were made at, up to the age
//     at which no run can be over yet. So it examines each run once, not long after its time.
//   - The full pass reads the blocks of the table, a few megabytes a step, and begins again every
//     few hours. It finds what the walk does not: runs that ended late, running runs without a
//     lease, which it hands back, and pending runs that are in no line, which it puts back.
//
// After a step, and apart from it, tables are pruned of rows that nothing needs any more
// (prune.go): cancel requests, workers, changes, statistics, idle gates. A table for which that
// fails rests, each time for longer.
//
// What the database refuses must not stop the rest. Statements of a step are sent in parts that can
// be rolled back alone; a part that is refused is tried in halves, down to the single run, which
// is skipped and named in the result. The number of failures of one step is bounded.
package sweep

import (
	"sync/atomic"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/aside"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/reading"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// Sweeper sweeps a store.
type Sweeper struct {
	db     *conn.DB
	schema *schema.Schema
	wake   *wake.Waker
	reader *reading.Reader
	tally  *admit.Tally // of this process

	opens    atomic.Bool       // a sweep under way has opened the only connection of db.General
	unpruned aside.Set[string] // tables that could not be pruned
}

// New returns the sweeper of a store. The reader finds the faults of limits; the tally counts those
// that were repaired.
func New(db *conn.DB, schema *schema.Schema, wake *wake.Waker, reader *reading.Reader, tally *admit.Tally) *Sweeper {
	return &Sweeper{db: db, schema: schema, wake: wake, reader: reader, tally: tally}
}
