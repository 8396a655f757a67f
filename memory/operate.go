package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
)

// Operate changes runs as an operator asks.
func (s *Store) Operate(ctx context.Context, order durable.Order) ([]durable.Changed, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s runs: %w", order.Action, err)
	}
	if err := order.Check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	seen := make(map[durable.RunID]durable.Changed, len(order.Runs))
	changed := make([]durable.Changed, len(order.Runs))
	waiting, asked := false, false
	for i, id := range order.Runs {
		if _, twice := seen[id]; !twice {
			seen[id] = s.operate(&order, id, now)
		}
		changed[i] = seen[id]
		waiting = waiting || changed[i].Did == durable.Done && changed[i].State == durable.Pending
		asked = asked || changed[i].Did == durable.Asked
	}
	if waiting || asked {
		s.hint()
	}
	return changed, nil
}

// operate does what is ordered with one run.
func (s *Store) operate(order *durable.Order, id durable.RunID, now time.Time) durable.Changed {
	r, found := s.runs[id]
	if !found {
		return durable.Changed{ID: id, Did: durable.Missing}
	}
	did := durable.Unchanged
	state := r.state
	switch order.Action {
	case durable.CancelRuns:
		did = s.cancel(r, order.Why(), now)
		state = r.state
	case durable.RetryRuns:
		did = s.retry(r, now)
		state = r.state
	case durable.DeleteRuns:
		did = s.remove(r)
	}
	if did == durable.Done || did == askedNow {
		s.note(change{at: now, kind: "run", subject: id.String(), what: string(order.Action), by: order.By, detail: order.Detail()})
	}
	if did == askedNow {
		did = durable.Asked
	}
	changed := durable.Changed{ID: id, Did: did, State: state}
	if order.Action == durable.RetryRuns && did == durable.Conflicting && state != durable.Succeeded {
		changed.Key, changed.KeyHolder = r.key, s.keys[keyName{r.lane.name.job, r.key}].run
	}
	return changed
}

// askedNow tells a request that is new from one that has been made before.
const askedNow durable.Did = "asked now"

func (s *Store) cancel(r *run, reason string, now time.Time) durable.Did {
	switch {
	case r.state == durable.Pending:
		s.leave(r)
		r.state, r.finishedAt, r.reason = durable.Cancelled, now, reason
		return durable.Done
	case r.state == durable.Running && r.cancel == "":
		r.cancel = reason
		return askedNow
	case r.state == durable.Running:
		return durable.Asked
	default:
		return durable.Unchanged
	}
}

func (s *Store) retry(r *run, now time.Time) durable.Did {
	switch r.state {
	case durable.Dead, durable.Cancelled:
		if !s.retake(r, now) {
			return durable.Conflicting
		}
		r.attempt, r.crashCount, r.claim, r.cancel, r.reason = 0, 0, lease.ClaimID{}, "", ""
		r.expiresAt, r.finishedAt = time.Time{}, time.Time{}
		s.wait(r, now)
		return durable.Done
	case durable.Succeeded:
		return durable.Conflicting
	default:
		return durable.Unchanged
	}
}

// retake gives a run its unique key back, unless another run holds it: one that
// has not ended, or whose time is not over.
func (s *Store) retake(r *run, now time.Time) bool {
	if r.key == "" {
		return true
	}
	name := keyName{r.lane.name.job, r.key}
	holder := s.keys[name]
	if holder != nil && holder.run == r.id {
		return true
	}
	if k := s.holder(holder, now); k.Stored && (!k.State.Terminal() || k.Held) {
		return false
	}
	s.keys[name] = &keyHolder{run: r.id, latest: r.id}
	return true
}

func (s *Store) remove(r *run) durable.Did {
	switch r.state {
	case durable.Running:
		return durable.Conflicting
	case durable.Pending:
		s.leave(r)
	}
	s.forget(r)
	i := s.below(r.id)
	s.byID = slices.Delete(s.byID, i, i+1)
	return durable.Done
}

// Rerun stores a run that is made after another one.
func (s *Store) Rerun(ctx context.Context, of durable.RunID, run durable.NewRun, by string) (durable.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return durable.Receipt{}, fmt.Errorf("rerun: %w", err)
	}
	if err := durable.CheckRerun(run, by); err != nil {
		return durable.Receipt{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	receipt := s.enqueue(&run, now)
	if receipt.Existing {
		return receipt, nil
	}
	s.note(change{at: now, kind: "run", subject: of.String(), what: "rerun", by: by, detail: durable.RerunDetail(run.ID)})
	s.hint()
	return receipt, nil
}

// Cancels returns the running runs of the claims that are to be cancelled.
func (s *Store) Cancels(ctx context.Context, claims []lease.ClaimID) ([]durable.CancelRequest, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cancels: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var requests []durable.CancelRequest
	for _, claim := range claims {
		l := s.leases[claim]
		if l == nil {
			continue
		}
		for _, r := range l.runs {
			if r.claim == claim && r.state == durable.Running && r.cancel != "" {
				requests = append(requests, durable.CancelRequest{Claim: claim, Run: r.id, Reason: r.cancel})
			}
		}
	}
	return requests, nil
}
