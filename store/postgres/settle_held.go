package postgres

import (
	"bytes"
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// settleAll writes the settlements in one transaction, in the order of their
// claims, so that a repeat that overtakes its original waits instead of
// deadlocking. When a transaction holds the row of a run for longer than a settle or
// a reclaim of ours would, the others are settled around it.
func (s *Store) settleAll(ctx context.Context, work []settling) error {
	ordered := make([]*settling, len(work))
	for i := range work {
		ordered[i] = &work[i]
	}
	slices.SortStableFunc(ordered, func(a, b *settling) int { return bytes.Compare(a.Claim[:], b.Claim[:]) })
	if !s.stuck.Within(heldFor) {
		if s.joinHandOn(ctx, ordered) || s.join(ctx, ordered) {
			return nil
		}
		err := s.db.Repeat(ctx, func() error { return s.settleNow(ctx, ordered) })
		if c := conn.Code(err); c != conn.LockNotAvailable && c != conn.QueryCanceled || ctx.Err() != nil {
			return err
		}
		s.stuck.Mark()
		s.db.Log.Warn("running run locked by another transaction; settling around it", "event", "settle.row_locked", "for", heldFor.String(), "error", err)
	}
	return s.db.Repeat(ctx, func() error {
		s.db.Sparing.Enter(ctx, conn.HotWait)
		defer s.db.Sparing.Leave()
		return conn.InTx(ctx, s.db.Engine, func(tx pgx.Tx) error { return s.settleFree(ctx, tx, ordered) })
	})
}

func (s *Store) settleNow(ctx context.Context, work []*settling) error {
	b := s.db.Hot(ctx)
	whole := addSettles(b, work)
	if err := s.db.Send(ctx, s.db.Engine, b); err != nil || !whole.isUnheld() {
		return err
	}
	b = s.db.Hot(ctx)
	addSettles(b, work)
	return s.db.Send(ctx, s.db.Engine, b)
}

// addSettles adds the statements that settle, in the order of their locks. It returns the
// settlement that one statement makes whole, if any: unless that was held, it is still to be made.
func addSettles(b *conn.Batch, work []*settling) (whole *settling) {
	if len(work) == 1 && work[0].isWhole() {
		work[0].addWhole(b)
		return work[0]
	}
	addHolds(b, work)
	for _, w := range work {
		w.forget()
		if w.addLast(b) {
			continue
		}
		w.addTo(b)
		if w.Last && !w.Limited {
			w.addUnlease(b)
		}
	}
	for _, w := range work {
		if w.Limited {
			w.addRelease(b, w.ids(), w.Last)
		}
	}
	addUnleases(b, work)
	return nil
}

// isWhole reports whether the runs are all those of a limited claim, and have plainly succeeded.
func (w *settling) isWhole() bool {
	return w.Limited && w.Last && !w.unheld && len(w.Runs) == w.Claimed && allPlain([]*settling{w})
}

// addWhole adds the one statement that settles a whole limited claim.
func (w *settling) addWhole(b *conn.Batch) {
	w.forget()
	b.Add(queries.SettleWhole, uuid.UUID(w.Claim), w.ids()).QueryRow(func(row pgx.Row) error {
		var held bool
		var settled conn.UUIDs
		if err := row.Scan(&held, &settled, &w.wanted, &w.blocked); err != nil {
			return err
		}
		w.unheld = !held
		w.applied(settled, len(settled) == len(w.Runs))
		return nil
	})
}

// isUnheld reports that SettleWhole has touched nothing.
func (w *settling) isUnheld() bool { return w != nil && w.unheld }

// addHolds locks the leases of limited claims, before any of their runs: see HoldLeases.
func addHolds(b *conn.Batch, work []*settling) {
	var claims conn.UUIDs
	for _, w := range work {
		if w.Limited {
			claims = append(claims, uuid.UUID(w.Claim))
		}
	}
	if len(claims) > 0 {
		b.Add(queries.HoldLeases, claims)
	}
}

// addRelease ends the part that the settled runs of a limited claim have in permits. It
// comes after the settles of all claims: a transaction that waits for a run while it holds
// permits may wait forever.
func (w *settling) addRelease(b *conn.Batch, ids conn.UUIDs, last bool) {
	w.addEnding(b, queries.Release, 2, ids, last, conn.Small(w.Claimed), uuid.UUID(w.Claim)).QueryRow(func(row pgx.Row) error {
		var wanted, blocked []store.LineID
		err := row.Scan(&wanted, &blocked)
		w.wanted, w.blocked = append(w.wanted, wanted...), append(w.blocked, blocked...)
		return err
	})
	b.Add(queries.ReleaseFinished, uuid.UUID(w.Claim), ids).QueryRow(func(row pgx.Row) error {
		var wanted []store.LineID
		err := row.Scan(&wanted)
		w.wanted, w.blocked = append(w.wanted, wanted...), append(w.blocked, wanted...)
		return err
	})
}

// addUnleases ends the leases of limited claims, which the releases have read.
func addUnleases(b *conn.Batch, work []*settling) {
	for _, w := range work {
		if w.Limited && w.Last && !w.deferred() {
			w.addUnlease(b)
		}
	}
}

// ids are the runs of the settlement.
func (w *settling) ids() conn.UUIDs {
	ids := make(conn.UUIDs, len(w.Runs))
	for i := range w.Runs {
		ids[i] = w.Runs[i].ID
	}
	return ids
}

// settleFree settles the runs that no other transaction holds. Those that are held and
// still the claim's are deferred, and their claim keeps its lease.
func (s *Store) settleFree(ctx context.Context, tx pgx.Tx, work []*settling) error {
	b := s.db.Guarded(ctx)
	b.Add(queries.Idle)
	addHolds(b, work)
	free := make([]settling, len(work))
	for i, w := range work {
		w.forget()
		free[i].general = w.general
		free[i].Settlement = &store.Settlement{Claim: w.Claim, Worker: w.Worker, Limited: w.Limited}
		b.Add(queries.FreeRuns, w.ids(), uuid.UUID(w.Claim)).Query(func(rows pgx.Rows) error { return w.divide(rows, &free[i]) })
	}
	if err := s.db.Send(ctx, tx, b); err != nil {
		return err
	}
	b = s.db.NewBatch()
	for i, w := range work {
		free[i].addTo(b)
		if w.Last && !w.Limited && !w.deferred() {
			w.addUnlease(b)
		}
	}
	for _, w := range work {
		if w.Limited {
			w.addRelease(b, w.undeferred(), w.Last && !w.deferred())
		}
	}
	addUnleases(b, work)
	if err := s.db.Send(ctx, tx, b); err != nil {
		return err
	}
	for i, w := range work {
		var ids []uuid.UUID
		for j, verdict := range free[i].verdicts {
			if verdict == store.Applied {
				ids = append(ids, free[i].Runs[j].ID)
			}
		}
		w.mark(ids, store.Applied)
	}
	return nil
}

// divide reads which runs are free, and defers those that are held.
func (w *settling) divide(rows pgx.Rows, free *settling) error {
	ours := map[uuid.UUID]bool{}
	for rows.Next() {
		var id uuid.UUID
		var isFree bool
		if err := rows.Scan(&id, &isFree); err != nil {
			return err
		}
		ours[id] = isFree
	}
	for i := range w.Runs {
		switch isFree, isOurs := ours[w.Runs[i].ID]; {
		case isFree:
			free.Runs = append(free.Runs, w.Runs[i])
		case isOurs:
			w.verdicts[i] = store.Deferred
		}
	}
	free.verdicts = make([]store.Verdict, len(free.Runs))
	return rows.Err()
}

// undeferred returns the runs that need not be settled later, because none of them is
// running under the claim any more.
func (w *settling) undeferred() conn.UUIDs {
	ids := make(conn.UUIDs, 0, len(w.Runs))
	for i := range w.Runs {
		if w.verdicts[i] != store.Deferred {
			ids = append(ids, w.Runs[i].ID)
		}
	}
	return ids
}

// deferred reports whether a run is still to be settled.
func (w *settling) deferred() bool { return slices.Contains(w.verdicts, store.Deferred) }
