package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// Settle ends executions that are still their claim's, in one transaction. Plain
// successes are settled by number; when SQLite refuses that, by id, and when it
// refuses that too, each as other outcomes are: what the handlers have done is
// done, and none of their runs is left to its lease while one of these works.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	if err := rules.CheckSettlements(settlements); err != nil {
		return nil, err
	}
	verdicts, waiting, err := s.settleAll(ctx, settlements, &s.seqs)
	if errors.Is(err, errNotAll) || refusesRow(err) && ctx.Err() == nil {
		verdicts, waiting, err = s.settleAll(ctx, settlements, new(seqCache))
	}
	if refusesRow(err) && ctx.Err() == nil {
		verdicts, waiting, err = s.settleAll(ctx, settlements, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	s.seqs.forget(settlements)
	if waiting {
		s.hint()
	}
	return verdicts, nil
}

// errNotAll says that a settle by number did not find all its runs. What it did
// is undone: which of them it found is not known.
var errNotAll = errors.New("not all runs are still the claim's")

// settleAll writes all settlements in one transaction, the plain successes by number
// where it is known, else by id; each by itself where nothing is to be known.
// waiting reports whether a run is pending again.
func (s *Store) settleAll(ctx context.Context, settlements []store.Settlement, known *seqCache) (verdicts []store.Verdict, waiting bool, err error) {
	err = s.write(ctx, settles, func(ctx context.Context, c *change) error {
		verdicts, waiting = nil, false
		for i := range settlements {
			given, again, err := c.settle(ctx, &settlements[i], known)
			if err != nil {
				return err
			}
			verdicts = append(verdicts, given...)
			waiting = waiting || again
		}
		return nil
	})
	return verdicts, waiting, err
}

// settle writes the plain successes of one claim in one statement and the
// other outcomes one by one. waiting reports whether a run is pending again.
func (c *change) settle(ctx context.Context, settlement *store.Settlement, known *seqCache) (verdicts []store.Verdict, waiting bool, err error) {
	if settlement.Limited { // each releases its permits
		known = nil
	}
	seqs, landed, err := c.settlePlain(ctx, settlement, known)
	if err != nil {
		return nil, false, err
	}
	verdicts = make([]store.Verdict, len(settlement.Runs))
	for i := range settlement.Runs {
		settled := &settlement.Runs[i]
		accepted := len(seqs) > 0 || landed[settled.ID]
		if known != nil && rules.Plain(&settled.Outcome) {
			delete(landed, settled.ID) // named twice: the second one finds the first
		} else if accepted, err = c.settleOne(ctx, settlement, settled); err != nil {
			return nil, false, err
		}
		if accepted {
			verdicts[i] = store.Applied
			waiting = waiting || !settled.Outcome.Kind.State().Terminal()
		} else if verdicts[i], err = c.verdict(ctx, settled.ID, settlement.Claim); err != nil {
			return nil, false, err
		}
	}
	if settlement.Last {
		err = c.unlease(ctx, settlement)
	}
	return verdicts, waiting, err
}

// settlePlain writes the plain successes of one claim: all those with these numbers,
// or those that are returned as landed.
func (c *change) settlePlain(
	ctx context.Context, settlement *store.Settlement, known *seqCache,
) (seqs []int64, landed map[store.RunID]bool, err error) {
	if known == nil {
		return nil, nil, nil
	}
	if seqs = known.find(settlement); len(seqs) == 0 {
		landed, err = c.settleSuccesses(ctx, settlement)
		return nil, landed, err
	}
	changed, err := c.settled.exec(ctx, seqs, c.now, settlement.Claim[:])
	if err == nil && changed != int64(len(seqs)) {
		err = errNotAll
	}
	return seqs, nil, err
}

// unlease ends the claim's lease, unless it covers running runs that its worker
// does not know of.
func (c *change) unlease(ctx context.Context, settlement *store.Settlement) error {
	if settlement.Claimed > 0 {
		ended, err := c.DeleteLeaseOf(ctx, queries.DeleteLeaseOfParams{ClaimID: settlement.Claim[:], Size: int64(idSize * settlement.Claimed)})
		if err != nil || ended > 0 {
			return err
		}
		ids, err := c.FindLease(ctx, queries.FindLeaseParams{ClaimID: settlement.Claim[:]})
		if err != nil {
			return unlessNone(err)
		}
		if left, err := c.claimedBefore(ctx, settlement.Claim, ids); err != nil || len(left) > 0 {
			return err
		}
	}
	return c.DeleteLease(ctx, queries.DeleteLeaseParams{ClaimID: settlement.Claim[:]})
}

// settleSuccesses writes the plain successes and returns those that were
// accepted.
func (c *change) settleSuccesses(ctx context.Context, settlement *store.Settlement) (map[store.RunID]bool, error) {
	var ids []byte
	for i := range settlement.Runs {
		if rules.Plain(&settlement.Runs[i].Outcome) {
			ids = append(ids, settlement.Runs[i].ID[:]...)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := c.successes.QueryContext(ctx, c.now, ids, settlement.Claim[:])
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports
	accepted := make(map[store.RunID]bool, len(ids)/idSize)
	for rows.Next() {
		var id sql.RawBytes
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		accepted[store.RunID(id)] = true
	}
	return accepted, rows.Err()
}

// settleOne writes one outcome with all that belongs to it.
func (c *change) settleOne(ctx context.Context, settlement *store.Settlement, settled *store.Settled) (accepted bool, err error) {
	switch state := settled.Outcome.Kind.State(); state {
	case store.Succeeded:
		accepted, err = c.settleSuccess(ctx, settlement, settled)
	case store.Pending:
		accepted, err = c.settlePending(ctx, settlement, settled)
	default:
		accepted, err = c.settleEnded(ctx, settlement, settled, state)
	}
	return accepted, err
}

// settleSuccess ends a run that has a result or log lines.
func (c *change) settleSuccess(ctx context.Context, settlement *store.Settlement, settled *store.Settled) (bool, error) {
	row, err := c.SettleSuccess(ctx, queries.SettleSuccessParams{
		FinishedAt: &c.now, Result: settled.Outcome.Result, ID: settled.ID[:], ClaimID: settlement.Claim[:],
	})
	if err != nil {
		return false, unlessNone(err)
	}
	if rules.Recorded(&settled.Outcome) {
		err = c.record(ctx, settlement.Worker.Name, settled, row.Attempt, row.Fence, row.StartedAt)
	}
	if err == nil && row.Limits != nil {
		err = c.release(ctx, settled.ID[:], store.Succeeded, row.Limits)
	}
	return true, err
}

// settlePending makes a run wait again.
func (c *change) settlePending(ctx context.Context, settlement *store.Settlement, settled *store.Settled) (bool, error) {
	outcome := &settled.Outcome
	due := c.now + rules.DueAfter(outcome).Microseconds()
	row, err := c.SettlePending(ctx, queries.SettlePendingParams{
		DueAt: due, Refund: int64(rules.Refund(outcome)), Now: c.now, ID: settled.ID[:], ClaimID: settlement.Claim[:],
	})
	if err != nil {
		return false, unlessNone(err)
	}
	if rules.Recorded(outcome) {
		err = c.record(ctx, settlement.Worker.Name, settled, row.Attempt+int64(rules.Refund(outcome)), row.Fence, row.StartedAt)
	}
	state, reason := rules.Settle(outcome, row.Cancel)
	if err == nil && row.Limits != nil {
		err = c.release(ctx, settled.ID[:], state, row.Limits)
	}
	if err == nil && row.Limits != nil && outcome.GivesBack() {
		err = c.refund(ctx, settled.ID[:])
	}
	switch {
	case err != nil:
	case state.Terminal():
		err = c.InsertProblem(ctx, queries.InsertProblemParams{RunID: settled.ID[:], EndedAt: c.now, Reason: reason})
	default:
		err = c.intoLine(ctx, row.Lane, due, settled.ID[:], row.Limits)
	}
	return true, err
}

// settleEnded ends a run that has not succeeded.
func (c *change) settleEnded(ctx context.Context, settlement *store.Settlement, settled *store.Settled, state store.State) (bool, error) {
	row, err := c.SettleEnded(ctx, queries.SettleEndedParams{
		State: int64(state), FinishedAt: &c.now, ID: settled.ID[:], ClaimID: settlement.Claim[:],
	})
	if err != nil {
		return false, unlessNone(err)
	}
	if err := c.record(ctx, settlement.Worker.Name, settled, row.Attempt, row.Fence, row.StartedAt); err != nil {
		return false, err
	}
	err = c.InsertProblem(ctx, queries.InsertProblemParams{RunID: settled.ID[:], EndedAt: c.now, Reason: settled.Outcome.Error})
	if err == nil && row.Limits != nil {
		err = c.release(ctx, settled.ID[:], state, row.Limits)
	}
	return true, err
}

// record notes an attempt.
func (c *change) record(ctx context.Context, worker string, settled *store.Settled, number, fence int64, startedAt *int64) error {
	ended := rules.EndedAt(&settled.Outcome, time.UnixMicro(*startedAt), time.UnixMicro(c.now))
	return c.InsertAttempt(ctx, queries.InsertAttemptParams{
		RunID: settled.ID[:], Fence: fence, Number: number, Outcome: int64(settled.Outcome.Kind), Worker: worker,
		StartedAt: *startedAt, EndedAt: ended.UnixMicro(), Error: rules.TextOrNil(settled.Outcome.Error), Stack: rules.TextOrNil(settled.Outcome.Stack),
		Log: rules.TextOrNil(settled.Outcome.Log),
	})
}

// verdict judges a write that found no running run of its claim.
func (c *change) verdict(ctx context.Context, id store.RunID, claim lease.ClaimID) (store.Verdict, error) {
	row, err := c.FindClaimOfRun(ctx, queries.FindClaimOfRunParams{ID: id[:]})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return store.Rejected, nil
	case err != nil:
		return 0, err
	case row.ClaimID != nil && lease.ClaimID(row.ClaimID) == claim:
		return store.AlreadyApplied, nil
	default:
		return store.Rejected, nil
	}
}

// unlessNone drops the error that says that there was no row.
func unlessNone(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// StillHeld returns those of the runs that are running under their claims.
func (s *Store) StillHeld(ctx context.Context, holders []store.Holder) (held []store.RunID, err error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("still held: %w", s.explain(err))
	}
	for i := range holders {
		row, err := reader.FindClaimOfRun(ctx, queries.FindClaimOfRunParams{ID: holders[i].Run[:]})
		if err := unlessNone(err); err != nil {
			return nil, fmt.Errorf("still held: %w", s.explain(err))
		}
		if store.State(row.State) == store.Running && bytes.Equal(row.ClaimID, holders[i].Claim[:]) {
			held = append(held, holders[i].Run)
		}
	}
	return held, nil
}
