package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// Operate changes runs as an operator asks.
func (s *Store) Operate(ctx context.Context, order store.RunCommand) ([]store.ChangedRun, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s runs: %w", order.Action, err)
	}
	if err := order.Check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	seen := make(map[store.RunID]store.ChangedRun, len(order.Runs))
	changed := make([]store.ChangedRun, len(order.Runs))
	waiting, asked := false, false
	for i, id := range order.Runs {
		if _, twice := seen[id]; !twice {
			seen[id] = s.operate(&order, id, now)
		}
		changed[i] = seen[id]
		waiting = waiting || changed[i].Result == store.RunChanged && changed[i].State == store.Pending
		asked = asked || changed[i].Result == store.CancelRequested
	}
	if waiting || asked {
		s.hint()
	}
	return changed, nil
}

// operate does what is ordered with one run.
func (s *Store) operate(order *store.RunCommand, id store.RunID, now time.Time) store.ChangedRun {
	r, found := s.runs[id]
	if !found {
		return store.ChangedRun{ID: id, Result: store.RunNotFound}
	}
	did := store.RunUnchanged
	state := r.state
	switch order.Action {
	case store.CancelRuns:
		did = s.cancel(r, order.Why(), now)
		state = r.state
	case store.RetryRuns:
		did = s.retry(r, now)
		state = r.state
	case store.DeleteRuns:
		did = s.remove(r)
	}
	if did == store.RunChanged || did == askedNow {
		s.note(change{at: now, kind: "run", subject: id.String(), what: string(order.Action), by: order.By, detail: order.Detail()})
	}
	if did == askedNow {
		did = store.CancelRequested
	}
	changed := store.ChangedRun{ID: id, Result: did, State: state}
	if order.Action == store.RetryRuns && did == store.RunConflict && state != store.Succeeded {
		changed.Key, changed.KeyHolder = r.key, s.keys[keyName{r.lane.name.job, r.key}].run
	}
	return changed
}

// askedNow tells a request that is new from one that has been made before.
const askedNow store.ChangeResult = "asked now"

func (s *Store) cancel(r *run, reason string, now time.Time) store.ChangeResult {
	switch {
	case r.state == store.Pending:
		s.leave(r)
		r.state, r.finishedAt, r.reason = store.Cancelled, now, reason
		return store.RunChanged
	case r.state == store.Running && r.cancel == "":
		r.cancel = reason
		return askedNow
	case r.state == store.Running:
		return store.CancelRequested
	default:
		return store.RunUnchanged
	}
}

func (s *Store) retry(r *run, now time.Time) store.ChangeResult {
	switch r.state {
	case store.Dead, store.Cancelled:
		if !s.retake(r, now) {
			return store.RunConflict
		}
		r.attempt, r.crashCount, r.claim, r.cancel, r.reason = 0, 0, lease.ClaimID{}, "", ""
		r.expiresAt, r.finishedAt = time.Time{}, time.Time{}
		s.wait(r, now)
		return store.RunChanged
	case store.Succeeded:
		return store.RunConflict
	default:
		return store.RunUnchanged
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

func (s *Store) remove(r *run) store.ChangeResult {
	switch r.state {
	case store.Running:
		return store.RunConflict
	case store.Pending:
		s.leave(r)
	}
	s.forget(r)
	i := s.below(r.id)
	s.byID = slices.Delete(s.byID, i, i+1)
	return store.RunChanged
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
	now := s.now()
	receipt := s.enqueue(&run, now)
	if receipt.Existing {
		return receipt, nil
	}
	s.note(change{at: now, kind: "run", subject: of.String(), what: "rerun", by: by, detail: store.RerunDetail(run.ID)})
	s.hint()
	return receipt, nil
}

// Cancels returns the running runs of the claims that are to be cancelled.
func (s *Store) Cancels(ctx context.Context, claims []lease.ClaimID) ([]store.CancelRequest, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cancels: %w", err)
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
