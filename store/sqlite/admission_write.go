package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// write does what was decided and starts the runs that were admitted.
func (a *admitting) write(ctx context.Context, d *admit.Decision) (runs []store.ClaimedRun, seqs []int64, err error) {
	if runs, seqs, err = a.start(ctx, d.Admitted); err != nil {
		return nil, nil, err
	}
	for i := range d.Permits {
		if err := a.grant(ctx, &d.Permits[i]); err != nil {
			return nil, nil, err
		}
	}
	for i := range d.Moved {
		moved := &d.Moved[i]
		if err := a.leave(ctx, &moved.Waiter); err != nil {
			return nil, nil, err
		}
		err := a.InsertWaiting(ctx, queries.InsertWaitingParams{Gate: int64(moved.To), Lane: int64(moved.Lane), DueAt: moved.DueAt.UnixMicro(), RunID: moved.Run[:]})
		if err != nil {
			return nil, nil, err
		}
	}
	for i := range d.Refused {
		if err := a.refuse(ctx, &d.Refused[i]); err != nil {
			return nil, nil, err
		}
	}
	for _, id := range d.Cancel {
		if err := a.cancel(ctx, id); err != nil {
			return nil, nil, err
		}
	}
	for _, rate := range d.Rates {
		if err := a.saveRate(ctx, rate.Gate, rate.Rate); err != nil {
			return nil, nil, err
		}
	}
	return runs, seqs, errors.Join(a.keep(ctx, d), a.writeRounds(ctx, d), a.arm(ctx, d))
}

// start takes the runs that were admitted out of their lines and starts them.
func (a *admitting) start(ctx context.Context, admitted []admit.Admitted) (runs []store.ClaimedRun, seqs []int64, err error) {
	for i := range admitted {
		w := &admitted[i].Waiter
		if err := a.leave(ctx, w); err != nil {
			return nil, nil, err
		}
		seq := a.waiters[w.Run].Seq
		found, err := a.FindStartable(ctx, queries.FindStartableParams{Seq: seq})
		if err != nil {
			return nil, nil, err
		}
		row := queries.FindClaimedRow(found)
		row.Attempt, row.Fence = row.Attempt+1, max(row.Fence+1, a.now)
		runs, seqs = append(runs, claimed(&row, a.now)), append(seqs, seq)
	}
	if len(runs) == 0 {
		return nil, nil, nil
	}
	if err := a.startRuns(ctx, a.request, seqs); err != nil {
		return nil, nil, err
	}
	return runs, seqs, a.lease(ctx, a.request, runs)
}

// leave deletes the row of a waiter.
func (a *admitting) leave(ctx context.Context, w *admit.Waiter) error {
	_, err := a.DeleteWaiting(ctx, queries.DeleteWaitingParams{Gate: int64(w.Gate), Lane: int64(w.Lane), DueAt: w.DueAt.UnixMicro(), RunID: w.Run[:]})
	return err
}

// grant writes a permit; that of a claim is one row for each run.
func (a *admitting) grant(ctx context.Context, p *admit.Permit) error {
	row := queries.InsertPermitParams{Gate: int64(p.Gate), Owner: p.Owner[:], RunID: []byte{}, Weight: int64(p.Weight), Until: int64(p.Until)}
	if len(p.Runs) == 0 { // of a named owner
		row.ExpiresAt = p.ExpiresAt.UnixMicro()
		has, err := a.ExtendPermit(ctx, queries.ExtendPermitParams{ExpiresAt: row.ExpiresAt, Gate: row.Gate, Owner: row.Owner, Now: a.now})
		if err != nil || has > 0 {
			return err
		}
		return a.InsertPermit(ctx, row)
	}
	if p.Owner == (uuid.UUID{}) {
		row.Owner = a.request.Claim[:]
	}
	for _, id := range p.Runs {
		row.RunID, row.Weight = id[:], 1
		for _, use := range a.uses[id] {
			if use.Gate == p.Gate {
				row.Weight = int64(use.Weight)
			}
		}
		if err := a.InsertPermit(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

// refuse ends the wait of a run, or puts it off.
func (a *admitting) refuse(ctx context.Context, refused *admit.Refused) error {
	if err := a.leave(ctx, &refused.Waiter); err != nil {
		return err
	}
	id := refused.Run[:]
	if refused.State == store.Pending {
		due := refused.DueAt.UnixMicro()
		return errors.Join(
			a.InsertWaiting(ctx, queries.InsertWaitingParams{Gate: int64(refused.Gate), Lane: int64(refused.Lane), DueAt: due, RunID: id}),
			a.PutOff(ctx, queries.PutOffParams{DueAt: due, ID: id}),
		)
	}
	return errors.Join(
		a.RefuseRun(ctx, queries.RefuseRunParams{State: int64(refused.State), FinishedAt: &a.now, ID: id}),
		a.InsertProblem(ctx, queries.InsertProblemParams{RunID: id, EndedAt: a.now, Reason: refused.Reason}),
		a.release(ctx, id, refused.State, a.waiters[refused.Run].Limits),
	)
}

// cancel asks a run to end that has executed for the longest time.
func (a *admitting) cancel(ctx context.Context, id store.RunID) error {
	one := a.oldest[id]
	why := rules.Oldest(one.limit)
	a.freed = true // its worker is to look
	return errors.Join(
		a.RequestCancel(ctx, queries.RequestCancelParams{Reason: &why, ID: id[:]}),
		a.InsertCancel(ctx, queries.InsertCancelParams{ClaimID: one.claim, RunID: id[:]}),
	)
}

// keep writes for which lanes places are kept.
func (a *admitting) keep(ctx context.Context, d *admit.Decision) error {
	for _, kept := range d.Keep {
		row := queries.SaveKeptParams{Gate: int64(kept.Gate), Lane: int64(kept.Lane), ExpiresAt: kept.ExpiresAt.UnixMicro()}
		if err := a.SaveKept(ctx, row); err != nil {
			return err
		}
	}
	for _, kept := range d.Unkeep {
		if err := a.DeleteKept(ctx, queries.DeleteKeptParams{Gate: int64(kept.Gate), Lane: int64(kept.Lane)}); err != nil {
			return err
		}
	}
	return nil
}

// arm inserts turns. One that is due for a lane of other workers wakes them.
func (a *admitting) arm(ctx context.Context, d *admit.Decision) error {
	for i, turn := range slices.Concat(d.Due, d.Turns) {
		row := queries.InsertTurnParams{Line: int64(turn.Line), DueAt: turn.DueAt.UnixMicro(), Gate: int64(turn.Gate)}
		if row.Until = row.DueAt; i < len(d.Due) {
			row.Until = -1 // always
		}
		added, err := a.InsertTurn(ctx, row)
		if err != nil {
			return err
		}
		lane := admit.LineLimit(turn.Line) == 0
		a.freed = a.freed || added > 0 && lane && row.DueAt <= a.now && !slices.Contains(a.request.Lanes, turn.Line)
	}
	return nil
}

// saveRate writes what a gate has admitted.
func (c *change) saveRate(ctx context.Context, gate admit.GateID, rate admit.Rate) error {
	row := queries.SaveRateParams{Gate: int64(gate), Tat: rate.TAT, Since: rate.Since, LastAt: rate.LastAt}
	if len(rate.At) > 0 {
		parts := make([][2]int64, len(rate.At))
		for i := range parts {
			parts[i] = [2]int64{rate.At[i], int64(rate.Count[i])}
		}
		text, err := json.Marshal(parts)
		if err != nil {
			return err
		}
		stored := string(text)
		row.Parts = &stored
	}
	return c.SaveRate(ctx, row)
}
