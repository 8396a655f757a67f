package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// Facts returns what decides about one run.
func (s *Store) Facts(ctx context.Context, id store.RunID) (store.Facts, error) {
	if err := ctx.Err(); err != nil {
		return store.Facts{}, fmt.Errorf("facts: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	facts := store.Facts{At: now, ID: id, Workers: rules.LatestWorkers(s.listWorkers(now), store.FactsWorkers)}
	facts.Changes = s.changesOf(store.ChangeFilter{Kind: rules.KindRun, Subject: id.String()}, store.FactsChanges)
	r, found := s.runs[id]
	if !found {
		facts.BulkDeletes = s.changesOf(store.ChangeFilter{Kind: rules.KindBulk, Action: string(store.DeleteRuns), Since: rules.DeletedSince(id)}, rules.BulkDeletesShown)
		return facts, nil
	}
	record := r.toRecord()
	record.Attempts = r.history()
	record.Attempts = record.Attempts[max(len(record.Attempts)-1, 0):]
	facts.Run = &record
	facts.Declared = rules.JobOf(s.listJobs(), record.Job)
	if s.queues[record.Queue] {
		facts.Paused = rules.PauseOf(s.changesOf(store.ChangeFilter{Kind: rules.KindQueue, Subject: record.Queue}, 1))
	}
	if r.state == store.Pending {
		facts.Gates = s.gatesOf(r, now)
	}
	switch {
	case r.state == store.Pending && len(r.uses) == 0 && !r.dueAt.After(now):
		facts.Lanes, facts.More = s.lanesBefore(r, now)
	case r.state == store.Running:
		facts.Lease, facts.CancelReason = s.leaseOf(r), r.cancel
	case r.state.Terminal() && r.state != store.Succeeded && r.key != "":
		if holder := s.keys[keyName{record.Job, r.key}]; holder != nil && holder.run != id && !rules.RegainsKey(s.holder(holder, now)) {
			facts.KeyHolder = &holder.run
		}
	}
	return facts, nil
}

// changesOf lists the newest changes that pass a filter. The caller holds mu.
func (s *Store) changesOf(filter store.ChangeFilter, most int) (changes []store.Change) {
	for _, c := range slices.Backward(s.audit) {
		if len(changes) < most && c.passes(&filter) {
			changes = append(changes, c.toChange())
		}
	}
	return changes
}

// leaseOf is the lease under which a run executes.
func (s *Store) leaseOf(r *run) *store.LeaseFacts {
	held := s.leases[r.claim]
	if held == nil {
		return nil
	}
	return &store.LeaseFacts{Worker: held.worker.Name, Instance: held.worker.Instance, AcquiredAt: r.startedAt, RenewedAt: held.renewedAt, ExpiresAt: held.expiresAt}
}

// gatesOf are the limits of a run with its keys.
func (s *Store) gatesOf(r *run, now time.Time) (gates []store.GateFacts) {
	uses := r.limits
	if queueCap := s.capOf(r.laneID()); queueCap != nil {
		uses = rules.UnderCap(uses, r.lane.name.queue, &queueCap.Limit)
	}
	for _, use := range uses {
		known := s.limits.byName[store.LimitName(use.Limit)]
		if known == nil {
			continue
		}
		gates = append(gates, store.GateFacts{Use: use, GateInfo: s.gateInfo(known, use.Key, now)})
		if known.Kind == store.LimitDynamicWindow && use.Key != "" { // what all keys share
			gates = append(gates, store.GateFacts{Use: use, GateInfo: s.gateInfo(known, "", now)})
		}
	}
	return gates
}

// gateInfo describes one key of a limit. The caller holds mu.
func (s *Store) gateInfo(known *limit, key string, now time.Time) store.GateInfo {
	info := store.GateInfo{Limit: known.Limit, Key: key}
	g := known.gates[admit.GateOf(&known.Limit, key)]
	if g == nil {
		return info
	}
	info.InUse, _ = g.used(now)
	info.Permits = g.permitInfos()
	waiters, all := s.waitersOf(g)
	info.Waiters, info.Waiting = waiters, store.Count{N: int64(all)}
	if g.notBefore.After(now) {
		info.NotBefore = timeOrNil(g.notBefore)
	}
	if g.awaited() {
		info.NextAt = timeOrNil(s.limits.turns.soonest(g.id))
	}
	return info
}

// lanesBefore returns the lanes whose runs are claimed before a run that is due.
func (s *Store) lanesBefore(r *run, now time.Time) (lanes []store.LaneFacts, more bool) {
	for _, l := range s.lanes {
		if l.name.priority < r.lane.name.priority || s.queues[l.name.queue] || r.isolated() && l != r.lane {
			continue
		}
		one := store.LaneFacts{Queue: l.name.queue, Job: l.name.job, Priority: l.name.priority}
		waiting := l.plain.runs
		if r.isolated() {
			waiting = l.isolated.runs
		}
		for _, other := range waiting {
			if other.dueAt.After(now) || l.name.priority == r.lane.name.priority && order(other, r) >= 0 {
				break
			}
			if one.Ahead.N++; one.Ahead.N == store.FactsAhead {
				one.Ahead.AtLeast = true
				break
			}
		}
		one.Ended = s.endedLately(one.Queue, one.Job, now)
		lanes = append(lanes, one)
	}
	slices.SortStableFunc(lanes, func(a, b store.LaneFacts) int {
		return cmp.Or(rules.CompareNearness(&a, &b, r.lane.name.queue, r.lane.name.job), cmp.Compare(b.Priority, a.Priority))
	})
	more = len(lanes) > store.FactsLanes
	return lanes[:min(len(lanes), store.FactsLanes)], more
}

// endedLately is how many attempts of a job on a queue have ended lately.
func (s *Store) endedLately(queue, job string, now time.Time) (ended int64) {
	for at := rules.StepOf(now.Add(-rules.Lately), store.Minute); !at.After(now); at = at.Add(store.Minute.Length()) {
		if tally := s.stats[statKey{store.Minute, at, queue, job}]; tally != nil {
			ended += tally.Ended()
		}
	}
	return ended
}

// Problems lists the dead runs, those that ended last first.
func (s *Store) Problems(ctx context.Context, filter store.ProblemFilter) ([]store.Problem, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("problems: %w", err)
	}
	most, err := filter.Most()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	problems := []store.Problem{}
	for _, r := range s.byID {
		name := &r.lane.name
		if r.state != store.Dead || r.acknowledgedAt.IsZero() != (filter.Scope == store.OpenProblems) || r.finishedAt.Before(filter.Since) ||
			len(filter.Jobs) > 0 && !slices.Contains(filter.Jobs, name.job) || len(filter.Queues) > 0 && !slices.Contains(filter.Queues, name.queue) {
			continue
		}
		problems = append(problems, store.Problem{Run: r.id, Job: name.job, Queue: name.queue, EndedAt: r.finishedAt, Reason: rules.ProblemReason(r.reason),
			AcknowledgedAt: timeOrNil(r.acknowledgedAt), AcknowledgedBy: r.acknowledgedBy})
	}
	slices.SortFunc(problems, rules.CompareProblems)
	return problems[:min(len(problems), most)], nil
}
