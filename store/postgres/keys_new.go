package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
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
func (s *Store) insertNewKeyed(ctx context.Context, to sender, runs []store.NewRun, set places, b *batch) (stored map[store.RunID]struct{}, err error) {
	stored = map[store.RunID]struct{}{}
	heldFor := time.Duration(0)
	for i := range runs {
		heldFor = max(heldFor, runs[i].Key.HeldFor)
	}
	a := alikeOf(runs, set)
	args := slices.Concat(a.lane, []any{micro(heldFor), a.ids, keyTexts(runs)}, a.shared, []any{a.args})
	b.add(queries.EnqueueNewKeyed, args...).Query(scanInto(stored))
	return stored, s.send(ctx, to, b)
}

// insertOneNew stores a run with a key in one round trip, unless there is more
// to ask: nothing has happened then.
func (s *Store) insertOneNew(ctx context.Context, run store.NewRun, set places) (done bool, err error) {
	b := &batch{names: s.names}
	lock, statement := limits(ctx, heldLimit)
	b.add(queries.Limits, lock, statement)
	stored, err := s.insertNewKeyed(ctx, s.general, []store.NewRun{run}, set, b)
	if code(err) == lockNotAvailable {
		return false, nil
	}
	return len(stored) == 1, err
}

// refuseChanged fails if the transaction reads from a snapshot and a holder has changed since.
// Its key, which is locked, may be as it was: a run ends, and is retried, without a change there.
func (k *keyedInsert) refuseChanged(ctx context.Context) error {
	var holders uuidArray
	for _, name := range k.names {
		if holder := k.holders[name]; holder.row.Frozen && holder.Stored {
			holders = append(holders, holder.id)
		}
	}
	if len(holders) == 0 {
		return nil
	}
	b := &batch{names: k.store.names}
	b.add(queries.BeginLook)
	b.add(queries.RefuseChanged, holders)
	b.add(queries.UndoLook)
	b.add(queries.EndLook)
	return k.store.send(ctx, k.to, b)
}
