package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// Settle ends executions that are still their claim's.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) ([]store.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	if err := checkSettlements(settlements); err != nil {
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
				s.end(r, settlement.Worker.Name, &settled.Outcome, now)
				waiting = waiting || r.state == store.Pending
			}
			verdicts = append(verdicts, verdict)
		}
		if settlement.Last && !s.unaccounted(settlement) {
			delete(s.leases, settlement.Claim)
		}
	}
	if waiting {
		s.hint()
	}
	return verdicts, nil
}

// unaccounted tells whether the claim's lease covers running runs that its
// worker does not know of.
func (s *Store) unaccounted(settlement *store.Settlement) bool {
	l := s.leases[settlement.Claim]
	if l == nil || settlement.Claimed == 0 || settlement.Claimed == len(l.runs) {
		return false
	}
	return slices.ContainsFunc(l.runs, func(r *run) bool { return r.claim == settlement.Claim && r.state == store.Running })
}

// checkSettlements refuses outcomes that no execution has.
func checkSettlements(settlements []store.Settlement) error {
	for _, settlement := range settlements {
		for _, settled := range settlement.Runs {
			if kind := settled.Outcome.Kind; kind < store.Success || kind > store.HandedBack {
				return fmt.Errorf("%w: run %s: %v cannot be settled", store.ErrInvalid, settled.ID, kind)
			}
		}
	}
	return nil
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
	if outcome.Kind.Recorded() || outcome.Kind == store.Success && outcome.Log != "" {
		r.record(worker, outcome, now)
	}
	if outcome.Kind.Refunded() {
		r.attempt--
	}
	switch state := outcome.Kind.State(); {
	case state == store.Pending && r.cancel != "":
		r.state, r.finishedAt, r.reason = store.Cancelled, now, r.cancel
	case state == store.Pending:
		var after time.Duration
		if outcome.Kind != store.HandedBack {
			after = outcome.After
		}
		s.wait(r, micro(now.Add(after)))
	case state == store.Succeeded:
		r.state, r.finishedAt = state, now
		r.result = bytes.Clone(outcome.Result)
	default:
		r.state, r.finishedAt = state, now
		r.reason = outcome.Error
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
		EndedAt:   now,
		Error:     textOrNil(outcome.Error),
		Stack:     textOrNil(outcome.Stack),
		Log:       textOrNil(outcome.Log),
	})
}

func textOrNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
