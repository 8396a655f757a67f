package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// sweep is how far the look at all runs has come. There is no need for two ways of
// looking: every look is a full pass, and cheap.
type sweep struct {
	position store.RunID // the runs up to here have been examined
	by       uuid.UUID   // who is at it; the zero id: no worker
	at       time.Time   // the last step
}

// Sweep examines the next runs by their ids.
func (s *Store) Sweep(ctx context.Context, request store.SweepRequest) (store.SweepResult, error) {
	if err := ctx.Err(); err != nil {
		return store.SweepResult{}, fmt.Errorf("sweep: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.sweep.by != (uuid.UUID{}) && s.sweep.by != request.By && now.Sub(s.sweep.at) < store.SweepTenure {
		return store.SweepResult{Busy: true}, nil
	}
	s.sweep.by, s.sweep.at = request.By, now
	from := s.below(s.sweep.position)
	if s.sweep.position != (store.RunID{}) && from < len(s.byID) && s.byID[from].id == s.sweep.position {
		from++
	}
	to := min(from+max(request.Limit, 1), len(s.byID))
	var done store.SweepResult
	waiting := false
	for _, r := range s.byID[from:to] {
		s.sweep.position = r.id
		switch {
		case s.over(r, &request, now):
			s.forget(r, now)
			done.Deleted++
		case s.stranded(r):
			done.Returned = append(done.Returned, s.takeBack(r, now))
			waiting = waiting || r.state == store.Pending
		}
	}
	if done.Done = to == len(s.byID); done.Done {
		s.sweep = sweep{}
		s.forgetBatches(&request, now)
		s.forgetWorkers(now)
		s.forgetGates(now)
		s.forgetChanges(now.Add(-rules.Kept(request.RetentionAudit)))
		s.forgetStats(now)
	}
	if done.Deleted > 0 {
		kept := slices.DeleteFunc(slices.Clone(s.byID[from:to]), func(r *run) bool { return s.runs[r.id] == nil })
		s.byID = slices.Replace(s.byID, from, to, kept...)
	}
	s.hintIf(waiting)
	return done, nil
}

// over reports whether a run has ended longer ago than it is kept.
func (s *Store) over(r *run, request *store.SweepRequest, now time.Time) bool {
	if !r.state.Terminal() {
		return false
	}
	if holder := s.keys[keyName{r.lane.name.job, r.key}]; holder != nil && holder.run == r.id && holder.heldTo.After(now) {
		return false
	}
	if s.isNeeded(r) {
		return false
	}
	own := time.Duration(s.jobs[r.lane.name.job].Retention)
	return now.Sub(r.finishedAt) > rules.Retention(r.state, own, request)
}

// forget deletes a run with all that is its own, except its place in byID.
func (s *Store) forget(r *run, now time.Time) {
	s.releaseAll(r, now)
	delete(s.runs, r.id)
	if name := (keyName{r.lane.name.job, r.key}); s.keys[name] != nil && s.keys[name].run == r.id {
		delete(s.keys, name)
	}
	one, found := s.schedules[r.schedule]
	if !found {
		return
	}
	same := func(other *run) bool { return other == r }
	one.runs, one.open = slices.DeleteFunc(one.runs, same), slices.DeleteFunc(one.open, same)
	if identity := (occurrence{r.schedule, r.generation, r.occurrence}); s.occurrences[identity] == r.id {
		delete(s.occurrences, identity)
	}
}

// stranded reports whether a run is running under a claim that has no lease.
func (s *Store) stranded(r *run) bool { return r.state == store.Running && s.leases[r.claim] == nil }

// takeBack ends the execution of a run whose lease has gone.
func (s *Store) takeBack(r *run, now time.Time) store.ReclaimedRun {
	r.claim = lease.ClaimID{}
	r.attempt--
	state, reason := rules.Strand(r.onCrash, rules.TextOrNil(r.cancel))
	s.become(r, state, reason, now)
	return store.ReclaimedRun{
		ID: r.id, Lane: r.laneID(), Job: r.lane.name.job, Queue: r.lane.name.queue,
		Worker: r.worker, State: r.state, CrashCount: r.crashCount,
	}
}

// forgetChanges drops the changes before an instant.
func (s *Store) forgetChanges(before time.Time) {
	first := slices.IndexFunc(s.audit, func(c change) bool { return !c.at.Before(before) })
	if first < 0 {
		first = len(s.audit)
	}
	s.audit = s.audit[first:]
}

// forgetWorkers drops workers that have not declared themselves for long. Runs
// and attempts keep their names.
func (s *Store) forgetWorkers(now time.Time) {
	for instance, w := range s.workers {
		if now.Sub(w.seenAt) > rules.WorkersKept {
			delete(s.workers, instance)
		}
	}
}
