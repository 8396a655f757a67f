package examine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// A running run whose claim has no lease is stranded: nothing expires, so nothing
// takes it back but the sweep's full pass. The tables that tell which runs have
// not ended do not know it, and an index on the state would make every claim and
// settle write it. So the newest runs are examined, in no more time than an
// answer may take.

// Stretch is the newest runs of a range of ids.
type Stretch struct {
	from, below uuid.UUID
	most        int
}

// Between is the newest of the runs whose ids are between two.
func Between(from, below uuid.UUID, most int) Stretch { return Stretch{from, below, most} }

// Newest is the newest of all runs.
func Newest(most int) Stretch { return Stretch{uuid.Nil, uuid.Max, most} }

const (
	// strandedMost bounds how many are returned.
	strandedMost  = 100_000
	examineMost   = 1_000_000       // runs that an examination examines
	examineWithin = 5 * time.Second // and for how long
)

// Stranded finds the stranded runs of a stretch.
func Stranded(ctx context.Context, db *conn.DB, to conn.Sender, of Stretch) (ids conn.UUIDs, err error) {
	b := db.Begin(ctx, to)
	b.Add(queries.Stranded, of.below, of.from, conn.Small(of.most), int32(strandedMost)).Query(func(rows pgx.Rows) error {
		ids = ids[:0]
		return conn.ScanIDs(rows, func(id uuid.UUID) { ids = append(ids, id) })
	})
	return ids, db.Send(ctx, to, b)
}

// examineStranded looks for runs that are marked as running and that no worker
// executes.
func (e *Examiner) examineStranded(ctx context.Context, f *store.Findings) error {
	bounded, cancel := context.WithTimeout(ctx, examineWithin)
	defer cancel()
	ids, err := Stranded(bounded, e.db, e.db.General, Newest(examineMost))
	switch {
	case ctx.Err() == nil && (conn.Code(err) == conn.QueryCanceled || errors.Is(err, context.DeadlineExceeded)):
		f.Fine(rules.RunningRuns, fmt.Sprintf("not looked at: it takes longer than %v", examineWithin))
	case err != nil:
		return err
	case len(ids) > 0:
		rules.FindStranded(f, int64(len(ids)), ids[0].String())
	default:
		f.Fine(rules.RunningRuns, fmt.Sprintf("of the newest %d runs, each that is running has a lease", examineMost))
	}
	return nil
}
