package enqueue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// holderBriefly is how long EnqueueUnder waits at first: a transaction of the
// handler's own keeps the run for longer, and many handlers may have one.
const holderBriefly = 20 * time.Millisecond

// EnqueueUnder stores the runs while the holder's run is its claim's. The run is
// locked last, since the order of locks is ready, leases, runs; what was stored
// before is rolled back when the run turns out to be lost.
func (e *Enqueuer) EnqueueUnder(ctx context.Context, holder store.Holder, runs ...store.NewRun) ([]store.Receipt, error) {
	what := fmt.Sprintf("enqueue under run %s", holder.Run)
	if err := store.CheckRuns(runs); err != nil {
		return nil, fmt.Errorf(what+": %w", err)
	}
	if err := e.schema.Usable(ctx); err != nil {
		return nil, e.db.Fail(what, err)
	}
	var receipts []store.Receipt
	var freed []store.LineID
	runs = rules.Held(runs)
	set := numbers.PlacesOf(runs)
	try := func(most time.Duration) error {
		return e.inTx(ctx, set, runs, func(tx pgx.Tx) (err error) {
			receipts, freed, err = e.insertUnder(ctx, tx, holder, runs, set, most)
			return err
		})
	}
	var err error
	if e.db.Shared { // the connection is one of the few that claim and settle
		err = conn.Insist(ctx, func() error { return try(holderBriefly) })
	} else {
		err = e.db.Briefly(ctx, holderBriefly, conn.HolderPatience, try)
	}
	if conn.Code(err) == conn.LockNotAvailable {
		err = fmt.Errorf("%w: another transaction has kept the run, or a key, locked for %v: if that transaction is yours, enqueue through it: %w", store.ErrConflict, conn.HolderPatience, err)
	}
	if err != nil {
		return nil, e.db.Fail(what, err)
	}
	e.wake.Enqueued()
	e.wake.HintDue(duesOf(runs, set.Lanes))
	e.wake.HintFreed(freed, freed)
	if store.AnyLinked(runs) {
		e.noticed(ctx)
	}
	return receipts, nil
}

func (e *Enqueuer) insertUnder(
	ctx context.Context, tx pgx.Tx, holder store.Holder, runs []store.NewRun, set numbers.Places, most time.Duration,
) (answers []store.Receipt, freed []store.LineID, err error) {
	if rules.AnyKeyed(runs) { // a transaction of the holder's own may have locked a key
		b := e.db.GuardedFor(ctx, most)
		b.Add(queries.Idle)
		if err := e.db.Send(ctx, tx, b); err != nil {
			return nil, nil, err
		}
	}
	insert := e.insertInto
	if store.AnyLinked(runs) {
		insert = e.linkedFor(&holder.Run)
	}
	if answers, freed, err = insert(ctx, tx, runs, set); err != nil {
		return nil, nil, err
	}
	held := false
	b := e.db.GuardedFor(ctx, most)
	b.Add(queries.Idle)
	b.Add(queries.HoldRun, holder.Run, uuid.UUID(holder.Claim)).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(uuid.UUID) { held = true })
	})
	if err := e.db.Send(ctx, tx, b); err != nil {
		return nil, nil, err
	}
	if !held {
		return nil, nil, lease.ErrLost
	}
	return answers, freed, e.noteOwner(ctx, tx, holder.Run, runs)
}

// noteOwner has the end of a run noted that owns batches of runs.
func (e *Enqueuer) noteOwner(ctx context.Context, to conn.Sender, owner store.RunID, runs []store.NewRun) error {
	if !slices.ContainsFunc(rules.BatchesOf(runs), func(batch store.NewBatch) bool { return batch.Owned }) {
		return nil
	}
	b := e.db.NewBatch()
	b.Add(queries.NoteEndOfOwner, owner)
	return e.db.Send(ctx, to, b)
}
