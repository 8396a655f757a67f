package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// A running run whose claim has no lease is stranded: nothing expires, so nothing
// takes it back but the sweep's full pass. The tables that tell which runs have
// not ended do not know it, and an index on the state would make every claim and
// settle write it. So the newest runs are examined, in no more time than an
// answer may take.

// stretch is the newest runs of a range of ids.
type stretch struct {
	from, below uuid.UUID
	most        int
}

// newest is the newest of all runs.
func newest(most int) stretch { return stretch{uuid.Nil, uuid.Max, most} }

const (
	examineMost   = 1_000_000       // runs that an examination examines
	examineWithin = 5 * time.Second // and for how long
)

// stranded finds the stranded runs of a stretch.
func (s *Store) stranded(ctx context.Context, to sender, of stretch) (ids uuidArray, err error) {
	b := s.begin(ctx, to)
	b.add(queries.Stranded, of.below, of.from, small(of.most), int32(countMost)).Query(func(rows pgx.Rows) error {
		ids = ids[:0]
		return scanIDs(rows, func(id uuid.UUID) { ids = append(ids, id) })
	})
	return ids, s.send(ctx, to, b)
}

// examineStranded looks for runs that are marked as running and that no worker
// executes.
func (s *Store) examineStranded(ctx context.Context, f *store.Findings) error {
	bounded, cancel := context.WithTimeout(ctx, examineWithin)
	defer cancel()
	ids, err := s.stranded(bounded, s.general, newest(examineMost))
	switch {
	case ctx.Err() == nil && (code(err) == queryCanceled || errors.Is(err, context.DeadlineExceeded)):
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
