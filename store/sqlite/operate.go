package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// Operate changes runs as an operator asks, all in one transaction.
func (s *Store) Operate(ctx context.Context, command store.RunCommand) ([]store.ChangedRun, error) {
	if err := command.Check(); err != nil {
		return nil, err
	}
	var changed []store.ChangedRun
	wake := false
	err := s.write(ctx, reclaims, func(ctx context.Context, c *change) error {
		changed, wake = make([]store.ChangedRun, len(command.Runs)), false
		seen := make(map[store.RunID]store.ChangedRun, len(command.Runs))
		written := int64(0)
		for i, id := range command.Runs {
			one, twice := seen[id]
			if !twice {
				var wrote bool
				var err error
				if one, wrote, err = c.operate(ctx, &command, id); err != nil {
					return err
				}
				if wrote {
					written++
				}
				seen[id] = one
			}
			changed[i] = one
			wake = wake || one.Result == store.CancelRequested || one.Result == store.RunChanged && one.State == store.Pending
		}
		return c.auditBulk(ctx, &command, written)
	})
	if err != nil {
		return nil, fmt.Errorf("%s runs: %w", command.Action, err)
	}
	if wake {
		s.hint()
	}
	return changed, nil
}

// operate does what is ordered with one run, and reports whether it wrote anything.
func (c *change) operate(ctx context.Context, command *store.RunCommand, id store.RunID) (changed store.ChangedRun, wrote bool, err error) {
	row, err := c.FindOperable(ctx, queries.FindOperableParams{ID: id[:]})
	if errors.Is(err, sql.ErrNoRows) {
		return store.ChangedRun{ID: id, Result: store.RunNotFound}, false, nil
	}
	if err != nil {
		return store.ChangedRun{}, false, err
	}
	effect := rules.Permit(command.Action, rules.Operable{State: store.State(row.State), CancelReason: row.Cancel, Acknowledged: row.Acknowledged, Held: row.Held})
	changed = store.ChangedRun{ID: id, Result: effect.Result, State: effect.State}
	if !effect.Writes {
		return changed, false, nil
	}
	switch command.Action {
	case store.CancelRuns:
		err = c.cancelRun(ctx, command, &row, id)
	case store.RetryRuns:
		var holder store.RunID
		if holder, err = c.takeKey(ctx, &row, id); err == nil && holder != id {
			return store.ChangedRun{ID: id, Result: store.RunConflict, State: store.State(row.State), Key: *row.Key, KeyHolder: holder}, false, nil
		}
		if err == nil {
			err = c.retryRun(ctx, &row, id)
		}
	case store.DeleteRuns:
		err = c.deleteRun(ctx, &row, id)
	case store.ReleaseRuns:
		err = errors.Join(c.MeetAll(ctx, queries.MeetAllParams{Waiter: id[:]}), c.makeDue(ctx, id[:], row.Lane, row.DueAt, row.Limits))
	case store.AcknowledgeRuns:
		err = c.Acknowledge(ctx, queries.AcknowledgeParams{Now: &c.now, By: &command.By, RunID: id[:]})
	}
	if err != nil || command.Bulk != nil {
		return changed, true, err
	}
	return changed, true, c.audit(ctx, rules.KindRun, id.String(), string(command.Action), command.By, command.Detail())
}

// auditBulk adds the runs that were changed to the row of a bulk change.
func (c *change) auditBulk(ctx context.Context, command *store.RunCommand, written int64) error {
	if command.Bulk == nil || written == 0 {
		return nil
	}
	bulk, detail := command.Bulk.ID.String(), string(command.Detail())
	rows, err := c.AddToBulk(ctx, queries.AddToBulkParams{Changed: &written, Bulk: bulk})
	if err != nil || rows > 0 {
		return err
	}
	return c.AuditBulk(ctx, queries.AuditBulkParams{At: c.now, Actor: command.By, Bulk: bulk, Action: string(command.Action), Detail: &detail, Changed: &written})
}

// cancelRun ends a pending run, and asks for the cancel of a running one.
func (c *change) cancelRun(ctx context.Context, command *store.RunCommand, row *queries.FindOperableRow, id store.RunID) error {
	reason := command.CancelReason()
	if store.State(row.State) == store.Running {
		if err := c.RequestCancel(ctx, queries.RequestCancelParams{Reason: &reason, ID: id[:]}); err != nil {
			return err
		}
		return c.InsertCancel(ctx, queries.InsertCancelParams{ClaimID: row.ClaimID, RunID: id[:]})
	}
	return c.cancelPending(ctx, id[:], row.Lane, row.DueAt, row.Limits, reason)
}

// cancelPending ends a pending run.
func (c *change) cancelPending(ctx context.Context, id []byte, lane, dueAt int64, limits *string, reason string) error {
	if err := c.outOfLine(ctx, lane, dueAt, id, limits); err != nil {
		return err
	}
	if err := c.CancelPending(ctx, queries.CancelPendingParams{FinishedAt: &c.now, ID: id}); err != nil {
		return err
	}
	if limits != nil {
		if err := c.release(ctx, id, store.Cancelled, limits); err != nil {
			return err
		}
	}
	return c.InsertProblem(ctx, queries.InsertProblemParams{RunID: id, EndedAt: c.now, Reason: reason})
}

// retryRun lets an ended run begin again.
func (c *change) retryRun(ctx context.Context, row *queries.FindOperableRow, id store.RunID) error {
	due, err := c.dueAgain(ctx, id[:])
	if err != nil {
		return err
	}
	if err := c.RetryRun(ctx, queries.RetryRunParams{DueAt: due, ID: id[:]}); err != nil {
		return err
	}
	if err := c.DeleteProblem(ctx, queries.DeleteProblemParams{RunID: id[:]}); err != nil {
		return err
	}
	if err := c.forgetFailures(ctx, id); err != nil {
		return err
	}
	if err := c.countRetried(ctx, id); err != nil {
		return err
	}
	return c.intoLine(ctx, max(row.Lane, -row.Lane), due, id[:], row.Limits)
}

// dueAgain is when a retried run is due: a dependent that was cancelled before its conditions were
// met waits for them again.
func (c *change) dueAgain(ctx context.Context, id []byte) (int64, error) {
	unmet, err := c.HasUnmet(ctx, queries.HasUnmetParams{Waiter: id})
	if err != nil || unmet == 0 {
		return c.now, err
	}
	return c.now + store.MaxDelay.Microseconds(), c.InsertLook(ctx, queries.InsertLookParams{DueAt: c.now, RunID: id})
}

// countRetried makes the schedule of a run that is pending again, if it has
// one, count it as unfinished.
func (c *change) countRetried(ctx context.Context, id store.RunID) error {
	of, err := c.ScheduleOf(ctx, queries.ScheduleOfParams{ID: id[:]})
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	schedule := store.Schedule{Name: of.Name}
	_ = schedule.SetSpec([]byte(of.Spec)) // without a plan, a hundred are remembered
	unfinished, err := c.unfinishedRuns(ctx, &schedule, store.OverlapAllow, of.Unfinished)
	if err != nil || slices.Contains(unfinished.IDs, id) {
		return err
	}
	unfinished.IDs = append(unfinished.IDs, id)
	return c.SetUnfinished(ctx, queries.SetUnfinishedParams{Unfinished: idBytes(unfinished.Keep(&schedule.Plan)), Name: of.Name})
}

// takeKey gives a run its unique key back, if it had one, unless the run that holds
// it keeps it. It returns the run that has the key then.
func (c *change) takeKey(ctx context.Context, row *queries.FindOperableRow, id store.RunID) (store.RunID, error) {
	if row.Key == nil {
		return id, nil
	}
	holder, err := c.FindKeyHolder(ctx, queries.FindKeyHolderParams{Job: row.Job, Key: *row.Key})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return store.RunID{}, err
	}
	if err == nil && store.RunID(holder.RunID) != id && !rules.RegainsKey(keyHolderOf(&holder, c.now)) {
		return store.RunID(holder.RunID), nil
	}
	return id, c.RetakeKey(ctx, queries.RetakeKeyParams{Job: row.Job, Key: *row.Key, RunID: id[:]})
}

func keyHolderOf(holder *queries.FindKeyHolderRow, now int64) store.KeyHolder {
	return store.KeyHolder{Stored: holder.State >= 0, State: store.State(holder.State), Held: holder.HeldTo != nil && *holder.HeldTo > now}
}

// deleteRun removes a run that is not running, with all that belongs to it.
func (c *change) deleteRun(ctx context.Context, row *queries.FindOperableRow, of store.RunID) error {
	id := of[:]
	if store.State(row.State) == store.Pending {
		if err := c.outOfLine(ctx, row.Lane, row.DueAt, id, row.Limits); err != nil {
			return err
		}
	}
	if err := c.releaseDeleted(ctx, id, row.Limits); err != nil {
		return err
	}
	if row.Key != nil {
		if err := c.ReleaseKey(ctx, queries.ReleaseKeyParams{Job: row.Job, Key: *row.Key, RunID: id}); err != nil {
			return err
		}
	}
	if _, err := c.deleteRecorded(ctx, id); err != nil {
		return err
	}
	return errors.Join(
		c.DeleteAttempts(ctx, queries.DeleteAttemptsParams{RunID: id}),
		c.DeleteProblem(ctx, queries.DeleteProblemParams{RunID: id}),
		c.DeleteProgress(ctx, queries.DeleteProgressParams{RunID: id}),
		c.DeleteRun(ctx, queries.DeleteRunParams{ID: id}),
		c.DeleteEdges(ctx, queries.DeleteEdgesParams{Waiter: id}),
	)
}

// audit records what an operator did.
func (c *change) audit(ctx context.Context, kind, subject, action, by string, detail []byte) error {
	row := queries.AuditChangeParams{At: c.now, Actor: by, Kind: kind, Subject: subject, Action: action}
	if detail != nil {
		text := string(detail)
		row.Detail = &text
	}
	return c.AuditChange(ctx, row)
}

// Rerun stores a run that is made after another one.
func (s *Store) Rerun(ctx context.Context, of store.RunID, run store.NewRun, by string) (store.Receipt, error) {
	if err := store.CheckRerun(run, by); err != nil {
		return store.Receipt{}, err
	}
	if err := s.checkLimits(ctx, []store.NewRun{run}); err != nil {
		return store.Receipt{}, fmt.Errorf("rerun: %w", err)
	}
	stored := call{runs: []store.NewRun{run}}
	fresh := newLanes()
	err := s.write(ctx, reclaims, func(ctx context.Context, c *change) error {
		if err := s.store(ctx, c, fresh, &stored); err != nil || stored.receipts[0].Existing {
			return err
		}
		if err := c.KeepOccurrence(ctx, queries.KeepOccurrenceParams{Made: run.ID[:], Original: of[:]}); err != nil {
			return err
		}
		return c.audit(ctx, rules.KindRun, of.String(), rules.Reruns, by, store.RerunDetail(run.ID))
	})
	if err != nil {
		return store.Receipt{}, fmt.Errorf("rerun: %w", err)
	}
	s.lanes.add(fresh)
	s.hint()
	return stored.receipts[0], nil
}

// Reveal records that an operator is shown what is hidden of a run.
func (s *Store) Reveal(ctx context.Context, run store.RunID, reason, by string) error {
	if err := store.CheckReveal(reason, by); err != nil {
		return err
	}
	err := s.write(ctx, reclaims, func(ctx context.Context, c *change) error {
		if _, err := c.FindLaneOfRun(ctx, queries.FindLaneOfRunParams{ID: run[:]}); err != nil {
			return err
		}
		return c.audit(ctx, rules.KindRun, run.String(), rules.Reveals, by, store.RevealDetail(reason))
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = store.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("reveal: %w", err)
	}
	return nil
}

// CancelRequests returns the running runs of the claims that are to be cancelled.
func (s *Store) CancelRequests(ctx context.Context, claims []lease.ClaimID) ([]store.CancelRequest, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("cancel requests: %w", s.explain(err))
	}
	var requests []store.CancelRequest
	for _, claim := range claims {
		rows, err := reader.ListCancels(ctx, queries.ListCancelsParams{ClaimID: claim[:]})
		if err != nil {
			return nil, fmt.Errorf("cancel requests: %w", s.explain(err))
		}
		for _, row := range rows {
			requests = append(requests, store.CancelRequest{Claim: claim, Run: store.RunID(row.RunID), Reason: row.Reason})
		}
	}
	return requests, nil
}
