package settling

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Settle ends executions, all in one transaction. When the database refuses
// the data of one run, which sanitised text never makes it do, the runs are
// settled one by one, and a fixed text replaces what could not be stored. When
// it refuses anything else, the statement for plain successes is left out.
func (s *Settler) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
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

// judge examines the runs that the writes did not touch: the claim's own
// earlier write has landed, or the run is no longer the claim's. What has landed is made
// durable, unless the end of the settle has done so.
func (s *Settler) judge(ctx context.Context, work []settling) error {
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

// StillHeld returns those of the runs that are running under their claims.
func (s *Settler) StillHeld(ctx context.Context, holders []store.Holder) (held []store.RunID, err error) {
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
