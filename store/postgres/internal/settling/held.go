package settling

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
func (s *Settler) settleAll(ctx context.Context, work []settling) error {
	ordered := make([]*settling, len(work))
	for i := range work {
		ordered[i] = &work[i]
	}
	slices.SortStableFunc(ordered, func(a, b *settling) int { return bytes.Compare(a.Claim[:], b.Claim[:]) })
	if !s.stuck.Within(conn.HeldFor) {
		if s.joinHandOn(ctx, ordered) || s.join(ctx, ordered) {
			return nil
		}
		err := s.db.Repeat(ctx, func() error { return s.settleNow(ctx, ordered) })
		if c := conn.Code(err); c != conn.LockNotAvailable && c != conn.QueryCanceled || ctx.Err() != nil {
			return err
		}
		s.stuck.Mark()
		s.db.Log.Warn("running run locked by another transaction; settling around it", "event", "settle.row_locked", "for", conn.HeldFor.String(), "error", err)
	}
	return s.db.Repeat(ctx, func() error {
		s.db.Sparing.Enter(ctx, conn.HotWait)
		defer s.db.Sparing.Leave()
		return conn.InTx(ctx, s.db.Engine, func(tx pgx.Tx) error { return s.settleFree(ctx, tx, ordered) })
	})
}

func (s *Settler) settleNow(ctx context.Context, work []*settling) error {
	b := s.db.Hot(ctx)
	whole := addSettles(b, work)
	if err := s.db.Send(ctx, s.db.Engine, b); err != nil || !whole.isUnheld() {
		return err
	}
	b = s.db.Hot(ctx)
	addSettles(b, work)
	return s.db.Send(ctx, s.db.Engine, b)
}

// settleFree settles the runs that no other transaction holds. Those that are held and
// still the claim's are deferred, and their claim keeps its lease.
func (s *Settler) settleFree(ctx context.Context, tx pgx.Tx, work []*settling) error {
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
