package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// Settle ends executions that are still their claim's.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	if err := rules.CheckSettlements(settlements); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var verdicts []store.Verdict
	waiting := false
	for i := range settlements {
		settlement := &settlements[i]
		for j := range settlement.Runs {
			settled := &settlement.Runs[j]
			verdict := s.verdict(settled.ID, settlement.Claim)
			if verdict == store.Applied {
				r := s.runs[settled.ID]
				if settled.Outcome.GivesBack() {
					s.refund(r, now)
				}
				s.end(r, settlement.Worker.Name, &settled.Outcome, now)
				waiting = waiting || r.state == store.Pending
			}
			verdicts = append(verdicts, verdict)
		}
		if settlement.Last && !s.unaccounted(settlement) {
			delete(s.leases, settlement.Claim)
		}
	}
	s.hintIf(waiting)
	return verdicts, nil
}

// unaccounted reports whether the claim's lease covers running runs that its
// worker does not know of.
func (s *Store) unaccounted(settlement *store.Settlement) bool {
	l := s.leases[settlement.Claim]
	if l == nil || settlement.Claimed == 0 || settlement.Claimed == len(l.runs) {
		return false
	}
	return slices.ContainsFunc(l.runs, func(r *run) bool { return r.claim == settlement.Claim && r.state == store.Running })
}

// verdict is the guard of every settle: nothing but the claim's id and the
// run's state decides.
func (s *Store) verdict(id store.RunID, claim lease.ClaimID) store.Verdict {
	r, found := s.runs[id]
	switch {
	case !found || r.claim != claim || claim == (lease.ClaimID{}):
		return store.Rejected
	case r.state != store.Running:
		return store.AlreadyApplied
	default:
		return store.Applied
	}
}

// end gives a running run its outcome. The claim stays on the run.
func (s *Store) end(r *run, worker string, outcome *store.Outcome, now time.Time) {
	if rules.Recorded(outcome) {
		r.record(worker, outcome, now)
	}
	r.attempt -= rules.Refund(outcome)
	state, reason := rules.Settle(outcome, rules.TextOrNil(r.cancel))
	if state == store.Pending {
		s.wait(r, micro(now.Add(rules.DueAfter(outcome))), now)
		return
	}
	s.finish(r, state, reason, now)
	if state == store.Succeeded {
		r.result = bytes.Clone(outcome.Result)
	}
}

// record notes how an execution ended.
func (r *run) record(worker string, outcome *store.Outcome, now time.Time) {
	r.attempts = append(r.attempts, store.Attempt{
		Number:    r.attempt,
		Outcome:   outcome.Kind,
		Worker:    worker,
		Fence:     r.fence,
		StartedAt: r.startedAt,
		EndedAt:   rules.EndedAt(outcome, r.startedAt, now),
		Error:     rules.TextOrNil(outcome.Error),
		Stack:     rules.TextOrNil(outcome.Stack),
		Log:       rules.TextOrNil(outcome.Log),
	})
}

// StillHeld returns those of the runs that are running under their claims.
func (s *Store) StillHeld(ctx context.Context, holders []store.Holder) (held []store.RunID, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("still held: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, holder := range holders {
		if s.verdict(holder.Run, holder.Claim) == store.Applied {
			held = append(held, holder.Run)
		}
	}
	return held, nil
}
