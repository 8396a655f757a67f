package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// Operate changes runs as an operator asks.
func (s *Store) Operate(ctx context.Context, command store.RunCommand) ([]store.ChangedRun, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s runs: %w", command.Action, err)
	}
	if err := command.Check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	seen := make(map[store.RunID]store.ChangedRun, len(command.Runs))
	changed := make([]store.ChangedRun, len(command.Runs))
	waiting, asked := false, false
	for i, id := range command.Runs {
		if _, twice := seen[id]; !twice {
			seen[id] = s.operate(&command, id, now)
		}
		changed[i] = seen[id]
		waiting = waiting || changed[i].Result == store.RunChanged && changed[i].State == store.Pending
		asked = asked || changed[i].Result == store.CancelRequested
	}
	s.hintIf(waiting || asked)
	return changed, nil
}

// operate does what is ordered with one run.
func (s *Store) operate(command *store.RunCommand, id store.RunID, now time.Time) store.ChangedRun {
	r, found := s.runs[id]
	if !found {
		return store.ChangedRun{ID: id, Result: store.RunNotFound}
	}
	effect := rules.Permit(command.Action, rules.Operable{State: r.state, CancelReason: rules.TextOrNil(r.cancel), Acknowledged: !r.acknowledgedAt.IsZero(), Held: r.state == store.Pending && r.holdAgain()})
	changed := store.ChangedRun{ID: id, Result: effect.Result, State: effect.State}
	if !effect.Writes {
		return changed
	}
	switch command.Action {
	case store.CancelRuns:
		s.cancel(r, command.CancelReason(), now)
	case store.RetryRuns:
		if !s.retake(r, now) {
			holder := s.keys[keyName{r.lane.name.job, r.key}].run
			return store.ChangedRun{ID: id, Result: store.RunConflict, State: r.state, Key: r.key, KeyHolder: holder}
		}
		s.retry(r, now)
	case store.DeleteRuns:
		s.remove(r, now)
	case store.ReleaseRuns:
		r.meetAll()
		s.makeDue(r, now)
	case store.AcknowledgeRuns:
		r.acknowledgedAt, r.acknowledgedBy = now, command.By
	}
	if command.Bulk != nil {
		s.noteBulk(now, command)
	} else {
		s.note(change{at: now, kind: rules.KindRun, subject: id.String(), what: string(command.Action), by: command.By, detail: command.Detail()})
	}
	return changed
}

// cancel ends a pending run, and asks for the cancel of a running one.
func (s *Store) cancel(r *run, reason string, now time.Time) {
	if r.state == store.Running {
		r.cancel = reason
		return
	}
	s.leave(r, now)
	s.finish(r, store.Cancelled, reason, now)
}

// retry lets an ended run begin again.
func (s *Store) retry(r *run, now time.Time) {
	r.attempt, r.crashCount, r.claim, r.cancel, r.reason = 0, 0, lease.ClaimID{}, "", ""
	r.expiresAt, r.finishedAt = time.Time{}, time.Time{}
	r.acknowledgedAt, r.acknowledgedBy = time.Time{}, ""
	r.forgetFailures()
	if one, found := s.schedules[r.schedule]; found && slices.Contains(one.runs, r) && !slices.Contains(one.open, r) {
		one.open = append(one.open, r)
	}
	if r.holdAgain() {
		s.wait(r, now.Add(store.MaxDelay), now)
		return
	}
	s.wait(r, now, now)
}

// retake gives a run its unique key back, unless the run that holds it keeps it.
func (s *Store) retake(r *run, now time.Time) bool {
	if r.key == "" {
		return true
	}
	name := keyName{r.lane.name.job, r.key}
	holder := s.keys[name]
	if holder != nil && holder.run == r.id {
		return true
	}
	if !rules.RegainsKey(s.holder(holder, now)) {
		return false
	}
	s.keys[name] = &keyHolder{run: r.id, latest: r.id}
	return true
}

// remove deletes a run that is not running.
func (s *Store) remove(r *run, now time.Time) {
	if r.state == store.Pending {
		s.leave(r, now)
		s.orphan(r)
	}
	s.forget(r, now)
	i := s.below(r.id)
	s.byID = slices.Delete(s.byID, i, i+1)
}

// Rerun stores a run that is made after another one.
func (s *Store) Rerun(ctx context.Context, of store.RunID, run store.NewRun, by string) (store.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return store.Receipt{}, fmt.Errorf("rerun: %w", err)
	}
	if err := store.CheckRerun(run, by); err != nil {
		return store.Receipt{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLimits([]store.NewRun{run}); err != nil {
		return store.Receipt{}, err
	}
	now := s.now()
	receipt := s.enqueue(&run, now)
	if receipt.Existing {
		return receipt, nil
	}
	if original := s.runs[of]; original != nil {
		s.runs[run.ID].occursAt = original.occursAt
	}
	s.note(change{at: now, kind: rules.KindRun, subject: of.String(), what: rules.Reruns, by: by, detail: store.RerunDetail(run.ID)})
	s.hint()
	return receipt, nil
}

// Reveal records that an operator is shown what is hidden of a run.
func (s *Store) Reveal(ctx context.Context, run store.RunID, reason, by string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("reveal: %w", err)
	}
	if err := store.CheckReveal(reason, by); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[run] == nil {
		return fmt.Errorf("reveal: %w", store.ErrNotFound)
	}
	s.note(change{at: s.now(), kind: rules.KindRun, subject: run.String(), what: rules.Reveals, by: by, detail: store.RevealDetail(reason)})
	return nil
}

// CancelRequests returns the running runs of the claims that are to be cancelled.
func (s *Store) CancelRequests(ctx context.Context, claims []lease.ClaimID) ([]store.CancelRequest, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cancel requests: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var requests []store.CancelRequest
	for _, claim := range claims {
		l := s.leases[claim]
		if l == nil {
			continue
		}
		for _, r := range l.runs {
			if r.claim == claim && r.state == store.Running && r.cancel != "" {
				requests = append(requests, store.CancelRequest{Claim: claim, Run: r.id, Reason: r.cancel})
			}
		}
	}
	return requests, nil
}
