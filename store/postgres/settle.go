package postgres

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
	"github.com/durable-worker/durable-worker/store/postgres/internal/witness"
)

// Settle ends executions, all in one transaction. When the database refuses
// the data of one run, which sanitised text never makes it do, the runs are
// settled one by one, and a fixed text replaces what could not be stored. When
// it refuses anything else, the statement for plain successes is left out.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	if err := rules.CheckSettlements(settlements); err != nil {
		return nil, err
	}
	work, total := make([]settling, len(settlements)), 0
	for i := range settlements {
		work[i] = settling{Settlement: &settlements[i], verdicts: make([]store.Verdict, len(settlements[i].Runs))}
		total += len(settlements[i].Runs)
		if settlements[i].Last && len(settlements[i].Runs) < settlements[i].Claimed {
			work[i].opened = s.db.Connections.Of(settlements[i].Claim)
		}
	}
	err := s.settleAll(ctx, work)
	if conn.RefusesRows(err) && !conn.RefusesData(err) && ctx.Err() == nil && anyPlain(settlements) {
		err = s.settleWithoutPlain(ctx, work, err)
	}
	if conn.RefusesData(err) {
		s.db.Log.Error("the database refused the outcome of a run, settling one by one", "event", "settle.refused", "error", err)
		err = s.settleEach(ctx, work)
	}
	if err == nil {
		err = s.judge(ctx, work)
	}
	if err != nil {
		return nil, s.db.Fail("settle runs", err)
	}
	verdicts := make([]store.Verdict, 0, total)
	var again []store.Due
	var freed, blocked []store.LineID
	for i := range work {
		verdicts = append(verdicts, work[i].verdicts...)
		again, freed, blocked = work[i].putBack(again), append(freed, work[i].wanted...), append(blocked, work[i].blocked...)
		if work[i].Last && work[i].Claimed > 1 && !work[i].deferred() {
			s.db.Connections.Over(work[i].Claim)
		}
	}
	s.wake.HintAgain(again)
	s.wake.HintFreed(freed, blocked)
	return verdicts, nil
}

// settling is a settlement under way.
type settling struct {
	*store.Settlement
	verdicts []store.Verdict // zero: the write did not touch the run
	opened   int64           // connections when the claim was sent; zero: it is not known
	general  bool            // plain successes are settled with the statement for the rest
	unheld   bool            // the lease is not as SettleWhole expects: the claim is settled by the other statements
	wanted   []store.LineID  // the lines of turns for whose gates, of which the settlement has freed places, runs wait
	blocked  []store.LineID  // those of them whose runs nothing else may let start
	wrote    bool            // the transaction has changed a row: its end has waited for all that was committed before
}

// Bounds of the map of outcomes of one statement.
const (
	mapRuns  = 1000
	mapBytes = 4 << 20
)

// lastFew is up to how many runs are settled, and their lease ended, in one statement.
const lastFew = 16

// isLastFew reports whether the runs are the last few of a claim and have plainly succeeded.
func (w *settling) isLastFew() bool {
	if w.general || w.Limited || !w.Last || len(w.Runs) == 0 || len(w.Runs) > lastFew {
		return false
	}
	for i := range w.Runs {
		if !rules.Plain(&w.Runs[i].Outcome) {
			return false
		}
	}
	return true
}

// addLast adds the one statement that settles the last few runs of a claim, if they
// are that.
func (w *settling) addLast(b *conn.Batch) bool {
	if !w.isLastFew() {
		return false
	}
	w.addEnding(b, queries.SettleLast, 2, w.ids(), uuid.UUID(w.Claim), conn.Small(w.Claimed)).Query(w.accept(len(w.Runs), true))
	return true
}

// forget drops what an earlier try has found.
func (w *settling) forget() {
	clear(w.verdicts)
	w.wanted, w.blocked, w.wrote = nil, nil, false
}

// addTo adds the statements that settle the runs: one for all plain successes,
// one or more for the rest.
func (w *settling) addTo(b *conn.Batch) {
	var plain, rest, back conn.UUIDs // back: of rest, those whose handlers have not begun
	var outcomes []byte
	flush := func() {
		if len(rest) > 0 {
			outcomes[0] = '{'
			each, text := w.accept(len(rest), len(rest) == len(w.Runs)), string(append(outcomes, '}'))
			if w.Limited {
				b.Add(queries.SettleLimited, text, rest, uuid.UUID(w.Claim), conn.OrNoIDs(back), w.Worker.Name).Query(each)
			} else {
				b.Add(queries.SettleRuns, text, rest, uuid.UUID(w.Claim), w.Worker.Name).Query(each)
			}
		}
		rest, back, outcomes = nil, nil, nil
	}
	for i := range w.Runs {
		run := &w.Runs[i]
		if !w.general && rules.Plain(&run.Outcome) {
			plain = append(plain, run.ID)
			continue
		}
		outcomes = appendOutcome(outcomes, run)
		if run.Outcome.GivesBack() {
			back = append(back, run.ID)
		}
		if rest = append(rest, run.ID); len(rest) == mapRuns || len(outcomes) > mapBytes {
			flush()
		}
	}
	flush()
	if len(plain) > 0 {
		b.Add(queries.SettleSuccesses, plain, uuid.UUID(w.Claim)).Query(w.accept(len(plain), len(plain) == len(w.Runs)))
	}
}

// accept reads the ids that a statement has touched. All says that it was asked for all of
// the settlement's.
func (w *settling) accept(asked int, all bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		ids := make([]uuid.UUID, 0, asked)
		if err := conn.ScanIDs(rows, func(id uuid.UUID) { ids = append(ids, id) }); err != nil {
			return err
		}
		w.applied(ids, all && len(ids) == asked)
		return nil
	}
}

// applied records which runs were settled. If all of them were, there is nothing to look up.
func (w *settling) applied(ids []uuid.UUID, all bool) {
	w.wrote = w.wrote || len(ids) > 0
	if !all {
		w.mark(ids, store.Applied)
		return
	}
	for i := range w.verdicts {
		w.verdicts[i] = store.Applied
	}
}

// addEnding adds a statement that may end the lease of the claim. Its argument at a position
// is how many runs the claim was given, for connections that are witnesses of all that was
// settled since. The others are read. A settlement of all runs needs no witness: the
// statements before this one have settled each.
func (w *settling) addEnding(b *conn.Batch, sql string, at int, args ...any) *pgx.QueuedQuery {
	if !w.Last || w.Claimed == 0 || len(w.Runs) == w.Claimed {
		return b.Add(sql, args...)
	}
	b.Rewritten = true
	return b.Add(sql, slices.Concat([]any{witness.Argument{Opened: w.opened, At: at, Else: int32(ofNone)}}, args)...)
}

// addUnlease adds the statement that does nothing but end the lease.
func (w *settling) addUnlease(b *conn.Batch) {
	w.addEnding(b, queries.Unlease, 1, uuid.UUID(w.Claim), conn.Small(w.Claimed)).Exec(func(tag pgconn.CommandTag) error {
		w.wrote = w.wrote || tag.RowsAffected() > 0
		return nil
	})
}

func (w *settling) mark(ids []uuid.UUID, verdict store.Verdict) {
	marked := make(map[uuid.UUID]struct{}, len(ids))
	for _, id := range ids {
		marked[id] = struct{}{}
	}
	for i := range w.Runs {
		if _, ok := marked[w.Runs[i].ID]; ok && w.verdicts[i] == 0 {
			w.verdicts[i] = verdict
		}
	}
}

// putBack adds the wake-ups for runs that were put back and are due before workers look by
// themselves.
func (w *settling) putBack(all []store.Due) []store.Due {
	for i := range w.Runs {
		run := &w.Runs[i]
		if w.verdicts[i] != store.Applied || run.Outcome.Kind.State() != store.Pending || run.Outcome.After > store.WakeAhead {
			continue
		}
		due := store.Due{Lane: run.Lane, Runs: 1, In: run.Outcome.After, Limited: w.Limited}
		if last := len(all) - 1; last >= 0 && all[last].Lane == due.Lane && all[last].In == due.In && all[last].Limited == due.Limited {
			all[last].Runs++
		} else {
			all = append(all, due)
		}
	}
	return all
}

// judge examines the runs that the writes did not touch: the claim's own
// earlier write has landed, or the run is no longer the claim's. What has landed is made
// durable, unless the end of the settle has done so.
func (s *Store) judge(ctx context.Context, work []settling) error {
	b := s.db.Guarded(ctx)
	if !slices.ContainsFunc(work, func(w settling) bool { return w.wrote }) {
		b.Add(queries.Seal)
	}
	before := b.Len()
	for i := range work {
		w := &work[i]
		var unclear conn.UUIDs
		for j, verdict := range w.verdicts {
			if verdict == 0 {
				unclear = append(unclear, w.Runs[j].ID)
			}
		}
		if len(unclear) > 0 {
			b.Add(queries.Verdicts, uuid.UUID(w.Claim), unclear).Query(w.landed)
		}
	}
	if b.Len() == before {
		return nil
	}
	if err := s.db.Send(ctx, s.db.Engine, b); err != nil {
		return err
	}
	for i := range work {
		for j, verdict := range work[i].verdicts {
			if verdict == 0 {
				work[i].verdicts[j] = store.Rejected
			}
		}
	}
	return nil
}

func (w *settling) landed(rows pgx.Rows) error {
	var ids []uuid.UUID
	for rows.Next() {
		var id uuid.UUID
		var landed bool
		if err := rows.Scan(&id, &landed); err != nil {
			return err
		}
		if landed {
			ids = append(ids, id)
		}
	}
	w.mark(ids, store.AlreadyApplied)
	return rows.Err()
}

// StillHeld returns those of the runs that are running under their claims.
func (s *Store) StillHeld(ctx context.Context, holders []store.Holder) (held []store.RunID, err error) {
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("still held", err)
	}
	ids, claims := make(conn.UUIDs, len(holders)), make(conn.UUIDs, len(holders))
	for i, holder := range holders {
		ids[i], claims[i] = holder.Run, uuid.UUID(holder.Claim)
	}
	b := s.db.Guarded(ctx)
	b.Add(queries.StillHeld, ids, claims).Query(func(rows pgx.Rows) error {
		held = held[:0]
		return conn.ScanIDs(rows, func(id uuid.UUID) { held = append(held, id) })
	})
	if err := s.db.SendInBackground(ctx, b); err != nil {
		return nil, s.db.Fail("still held", err)
	}
	return held, nil
}
