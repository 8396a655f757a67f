// Package batches counts runs together.
//
// A statement that adds, ends, retries or deletes members leaves by how much the counts of their
// batch have changed (by triggers on runs, and AddMembers): no settle waits for the row of a batch,
// and none writes it. A release locks the batch, adds to its counts what is there, and deletes it
// (fold.go). So the row and the changes together are the states of the members in every snapshot.
//
// What others may wait for is decided only when no change of the batch is left in a later snapshot:
// a release takes a bounded number of changes, and those may add up to an end while the rest adds
// members. A member that adds another one commits that before it ends, so a snapshot with the end has
// the addition too.
//
// A batch is closed and cancelled under a lock that those who add runs wait for, and for which a
// release does not wait: it looks again later.
package batches

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
)

// Batches is the room. Its methods may be called from many goroutines.
type Batches struct {
	db     *conn.DB
	schema *schema.Schema

	mu    sync.Mutex
	after uuid.UUID                   // the batches up to here were folded last
	aside map[uuid.UUID]time.Duration // what the database has refused to change, and until when
}

// New returns the batches of a database.
func New(db *conn.DB, schema *schema.Schema) *Batches {
	return &Batches{db: db, schema: schema, aside: map[uuid.UUID]time.Duration{}}
}

// Close closes a batch; see store.Batches.
func (s *Batches) Close(ctx context.Context, closing store.BatchClose) error {
	return s.change(ctx, "close batch", closing.ID, queries.CloseBatch, closing.ID.String(), closing.By, rules.KindBatch, rules.BatchCloses)
}

// Cancel has a batch cancelled; see store.Batches.
func (s *Batches) Cancel(ctx context.Context, cancel *store.BatchCancel) error {
	if err := cancel.Check(); err != nil {
		return err
	}
	reason := cancel.Reason
	if reason == "" {
		reason = rules.BatchCancelled
	}
	return s.change(ctx, "cancel batch", cancel.ID, queries.CancelBatch, cancel.ID.String(), reason, cancel.By, rules.KindBatch, string(store.CancelRuns))
}

// change sends a statement that returns the batch, if there is one.
func (s *Batches) change(ctx context.Context, what string, id store.BatchID, statement string, args ...any) error {
	if err := s.schema.Usable(ctx); err != nil {
		return s.db.Fail(what, err)
	}
	found := false
	err := s.db.Repeat(ctx, func() error {
		b := s.db.Guarded(ctx)
		b.Add(statement, args...).Query(func(rows pgx.Rows) error {
			return conn.ScanIDs(rows, func(uuid.UUID) { found = true })
		})
		return s.db.Send(ctx, s.db.General, b)
	})
	switch {
	case conn.Code(err) == conn.LockNotAvailable:
		return s.db.Fail(what, fmt.Errorf("%w: a transaction that adds runs to batch %s has not ended: %w", store.ErrConflict, id, err))
	case err != nil:
		return s.db.Fail(what, err)
	case !found:
		return fmt.Errorf("%s: %w", what, rules.UnknownBatch(id))
	}
	return nil
}

// Await closes the holder's batch, and has its end noted for a step; see store.BatchWaiter.
func (s *Batches) Await(ctx context.Context, holder store.Holder, id store.BatchID, name string) (store.Batch, error) {
	what := fmt.Sprintf("wait for batch %s", id)
	if err := store.CheckStepName(name); err != nil {
		return store.Batch{}, fmt.Errorf("%s: %w", what, err)
	}
	if err := s.schema.Usable(ctx); err != nil {
		return store.Batch{}, s.db.Fail(what, err)
	}
	held, found := false, false
	err := s.db.InAloofTx(ctx, func(tx pgx.Tx) error {
		b := s.db.Guarded(ctx)
		b.Add(queries.HoldRun, holder.Run, uuid.UUID(holder.Claim)).Query(func(rows pgx.Rows) error {
			return conn.ScanIDs(rows, func(uuid.UUID) { held = true })
		})
		if err := s.db.Send(ctx, tx, b); err != nil || !held {
			return err
		}
		b = s.db.NewBatch()
		b.Add(queries.AwaitBatch, id, holder.Run, int16(rules.WantOf(store.WantEnded, true)), name).Query(func(rows pgx.Rows) error {
			return conn.ScanIDs(rows, func(uuid.UUID) { found = true })
		})
		return s.db.Send(ctx, tx, b)
	})
	switch {
	case conn.Code(err) == conn.LockNotAvailable:
		return store.Batch{}, s.db.Fail(what, fmt.Errorf("%w: another transaction keeps the run, or the batch, locked: %w", store.ErrConflict, err))
	case err != nil:
		return store.Batch{}, s.db.Fail(what, err)
	case !held:
		return store.Batch{}, fmt.Errorf("%s: %w", what, lease.ErrLost)
	case !found:
		return store.Batch{}, fmt.Errorf("%s: %w", what, rules.UnknownBatch(id))
	}
	return s.Of(ctx, id)
}
