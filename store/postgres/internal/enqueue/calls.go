package enqueue

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Call stores the children of calls, and that their runs wait for them; see store.Caller. The runs
// that call are locked last, as by EnqueueUnder, and it waits for none of them: calls of many runs
// share a transaction, and one of them must not keep the others waiting.
func (e *Enqueuer) Call(ctx context.Context, calls []store.Call) error {
	if err := store.CheckCalls(calls); err != nil {
		return err
	}
	if err := e.schema.Usable(ctx); err != nil {
		return e.db.Fail("call", err)
	}
	runs := store.ChildrenOf(calls)
	set := numbers.PlacesOf(runs)
	var freed []store.LineID
	err := e.inTx(ctx, set, runs, func(tx pgx.Tx) (err error) {
		freed, err = e.insertCalls(ctx, tx, calls, set)
		return err
	})
	if err != nil {
		return e.db.Fail("call", err)
	}
	e.wake.Enqueued()
	e.wake.HintDue(duesOf(runs, set.Lanes))
	e.wake.HintFreed(freed, freed)
	if store.AnyLinked(runs) {
		e.noticed(ctx)
	}
	return nil
}

// insertCalls stores children, and then has the runs wait that call them.
func (e *Enqueuer) insertCalls(ctx context.Context, tx pgx.Tx, calls []store.Call, set numbers.Places) (freed []store.LineID, err error) {
	if err := e.db.Send(ctx, tx, e.db.GuardedFor(ctx, conn.HeldLimit)); err != nil {
		return nil, err
	}
	existing := map[store.RunID]bool{}
	stored := func(receipts []store.Receipt, more []store.LineID, err error) error {
		for _, receipt := range receipts {
			existing[receipt.ID] = receipt.Existing
		}
		freed = append(freed, more...)
		return err
	}
	var plain []store.NewRun
	for i := range calls {
		call := &calls[i]
		if !store.AnyLinked(call.Children) {
			plain = append(plain, call.Children...)
			continue
		}
		if err := stored(e.insertLinked(ctx, tx, &call.Run, call.Children, set)); err != nil {
			return nil, err
		}
	}
	if len(plain) > 0 {
		if err := stored(e.insertInto(ctx, tx, plain, set)); err != nil {
			return nil, err
		}
	}
	return freed, e.beginCalls(ctx, tx, calls, existing)
}

// beginCalls makes runs that were just stored the children of those that call them, which begin to
// wait. It refuses the calls if one of these is no longer its claim's, or locked.
func (e *Enqueuer) beginCalls(ctx context.Context, tx pgx.Tx, calls []store.Call, existing map[store.RunID]bool) error {
	var ids, parents, callers, claims conn.UUIDs
	var stored []bool
	var names, called []string
	var counts []int32
	for i := range calls {
		call := &calls[i]
		callers, claims, called = append(callers, call.Run), append(claims, uuid.UUID(call.Claim)), append(called, call.Name)
		counts = append(counts, int32(len(call.Children))) //nolint:gosec // at most MaxSources
		for k := range call.Children {
			id := call.Children[k].ID
			ids, stored = append(ids, id), append(stored, !existing[id])
			parents, names = append(parents, call.Run), append(names, call.Name)
		}
		if err := e.noteOwner(ctx, tx, call.Run, call.Children); err != nil {
			return err
		}
	}
	locked := map[uuid.UUID]bool{}
	var foreign []uuid.UUID
	b := e.db.NewBatch()
	b.Add(queries.BeginCalls, ids, stored, parents, names, callers, claims, called, counts, int16(store.WantEnded)).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			var isForeign bool
			if err := rows.Scan(&id, &isForeign); err != nil {
				return err
			}
			if isForeign {
				foreign = append(foreign, id)
			} else {
				locked[id] = true
			}
		}
		return rows.Err()
	})
	if err := e.db.Send(ctx, tx, b); err != nil {
		return err
	}
	for i := range calls {
		if !locked[calls[i].Run] {
			return e.whyNotLocked(ctx, tx, &calls[i])
		}
	}
	if len(foreign) > 0 {
		return rules.NotItsChild(foreign[0])
	}
	return nil
}

// whyNotLocked says why a run that calls could not be locked.
func (e *Enqueuer) whyNotLocked(ctx context.Context, tx pgx.Tx, call *store.Call) error {
	held := false
	b := e.db.NewBatch()
	b.Add(queries.CallersHeld, conn.UUIDs{call.Run}, conn.UUIDs{uuid.UUID(call.Claim)}).Query(func(rows pgx.Rows) error {
		return conn.ScanIDs(rows, func(uuid.UUID) { held = true })
	})
	switch err := e.db.Send(ctx, tx, b); {
	case err != nil:
		return err
	case held:
		return fmt.Errorf("%w: another transaction keeps run %s locked: if that transaction is the handler's own, end it first", store.ErrConflict, call.Run)
	default:
		return fmt.Errorf("run %s: %w", call.Run, lease.ErrLost)
	}
}
