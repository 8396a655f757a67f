package enqueue

import (
	"context"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// mayBeNew reports whether one statement can store the runs if their keys are
// free: they are alike, and no key is there twice.
func mayBeNew(runs []store.NewRun) bool {
	if anyLimited(runs) || !alike(runs) || len(parts(runs)) > 1 {
		return false
	}
	if len(runs) == 1 {
		return true
	}
	heldFor, seen := time.Duration(-1), make(map[string]struct{}, len(runs))
	for i := range runs {
		key := &runs[i].Key
		if key.Text == "" {
			continue
		}
		if _, again := seen[key.Text]; again || heldFor >= 0 && key.HeldFor != heldFor {
			return false
		}
		seen[key.Text], heldFor = struct{}{}, key.HeldFor
	}
	return true
}

// insertNewKeyed stores the runs if their keys are free, except those that
// are stored, and returns which it has. What is in the batch already goes first.
func (e *Enqueuer) insertNewKeyed(ctx context.Context, to conn.Sender, runs []store.NewRun, set numbers.Places, b *conn.Batch) (stored map[store.RunID]struct{}, err error) {
	stored = map[store.RunID]struct{}{}
	heldFor := time.Duration(0)
	for i := range runs {
		heldFor = max(heldFor, runs[i].Key.HeldFor)
	}
	a := alikeOf(runs, set)
	args := slices.Concat(a.lane, []any{conn.Micro(heldFor), a.ids, keyTexts(runs)}, a.shared, []any{a.args})
	b.Add(queries.EnqueueNewKeyed, args...).Query(conn.ScanInto(stored))
	return stored, e.db.Send(ctx, to, b)
}

// insertOneNew stores a run with a key in one round trip, unless there is more
// to ask: nothing has happened then.
func (e *Enqueuer) insertOneNew(ctx context.Context, run store.NewRun, set numbers.Places) (done bool, err error) {
	b := e.db.NewBatch()
	lock, statement := conn.Limits(ctx, conn.HeldLimit)
	b.Add(queries.Limits, lock, statement)
	stored, err := e.insertNewKeyed(ctx, e.db.General, []store.NewRun{run}, set, b)
	if conn.Code(err) == conn.LockNotAvailable {
		return false, nil
	}
	return len(stored) == 1, err
}

// refuseChanged fails if the transaction reads from a snapshot and a holder has changed since.
// Its key, which is locked, may be as it was: a run ends, and is retried, without a change there.
func (k *keyedInsert) refuseChanged(ctx context.Context) error {
	var holders conn.UUIDs
	for _, name := range k.names {
		if holder := k.holders[name]; holder.row.Frozen && holder.Stored {
			holders = append(holders, holder.id)
		}
	}
	if len(holders) == 0 {
		return nil
	}
	b := k.enqueuer.db.NewBatch()
	b.Add(queries.BeginLook)
	b.Add(queries.RefuseChanged, holders)
	b.Add(queries.UndoLook)
	b.Add(queries.EndLook)
	return k.enqueuer.db.Send(ctx, k.to, b)
}
