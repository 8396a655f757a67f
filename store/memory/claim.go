package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// Claim takes due runs by the request's steps and leases them together.
func (s *Store) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if l, again := s.leases[request.Claim]; again {
		return l.claimed(request.Claim, now, s.isLinked), nil
	}
	var runs []*run
	if len(request.Admissions) > 0 {
		runs = s.admission(&request, now)
	} else {
		runs = s.pick(request.Steps, request.Limit, now)
	}
	if len(runs) == 0 {
		return nil, nil
	}
	for _, r := range runs {
		r.claim = request.Claim
		r.attempt++
		r.fence = max(r.fence+1, lease.Fence(now.UnixMicro()))
		r.worker = request.Worker.Name
		r.startedAt = now
	}
	l := &held{worker: request.Worker, runs: runs, alone: request.Alone, renewedAt: now, expiresAt: now.Add(request.Duration)}
	s.leases[request.Claim] = l
	return l.claimed(request.Claim, now, s.isLinked), nil
}

// pick takes runs out of their lines and makes them Running. Steps count the
// runs of a line as it stood before the first step.
func (s *Store) pick(steps []store.Step, limit int, now time.Time) []*run {
	type span struct {
		line *line
		i, j int
	}
	var runs []*run
	var spans []span
	for _, step := range steps {
		l := s.line(step.Lane)
		if l == nil || s.queues[s.lanes[max(step.Lane, -step.Lane)-1].name.queue] {
			continue
		}
		if limit := s.capOf(step.Lane); limit != nil {
			s.adoptRuns(l, limit, step.Take, now)
			continue
		}
		i := l.from(step.From) + max(step.Skip, 0)
		j := i
		for end := l.due(now); j < end && j-i < step.Take && len(runs) < limit; j++ {
			if r := l.runs[j]; r.state == store.Pending { // not taken by an earlier step
				r.state = store.Running
				runs = append(runs, r)
			}
		}
		if j > i {
			spans = append(spans, span{l, i, j})
		}
	}
	// From the back of each line, so that the places before stay true.
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(b.i, a.i) })
	for _, span := range spans {
		span.line.sweep(span.i, span.j)
	}
	return runs
}

// claimed says what the claim still holds of what it was given.
func (l *held) claimed(claim lease.ClaimID, now time.Time, linked func(*run) bool) []store.ClaimedRun {
	claimed := make([]store.ClaimedRun, 0, len(l.runs))
	for _, r := range l.runs {
		if r.claim != claim || r.state != store.Running {
			continue
		}
		claimed = append(claimed, store.ClaimedRun{
			ID:          r.id,
			Lane:        r.laneID(),
			Attempt:     r.attempt,
			MaxAttempts: r.maxAttempts,
			CrashCount:  r.crashCount,
			Fence:       r.fence,
			DueAt:       r.dueAt,
			CreatedAt:   r.createdAt,
			Timeout:     r.timeout,
			Expired:     !r.expiresAt.IsZero() && !r.expiresAt.After(now),
			Trace:       r.trace,
			Key:         r.key,
			Schedule:    r.schedule,
			OccursAt:    r.occursAt,
			Tags:        slices.Clone(r.tags),
			Metadata:    maps.Clone(r.metadata),
			Args:        bytes.Clone(r.args),
			Linked:      linked(r),
		})
	}
	return claimed
}

// HandBack takes back a claim whose answer never came.
func (s *Store) HandBack(ctx context.Context, request store.ClaimRequest) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("hand back: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	l, granted := s.leases[request.Claim]
	if !granted {
		s.leases[request.Claim] = &held{worker: request.Worker, alone: request.Alone, expiresAt: now.Add(request.Duration)}
		return 0, nil
	}
	waiting := false
	for _, r := range l.runs {
		if r.claim == request.Claim && r.state == store.Running {
			s.refund(r, now)
			s.end(r, request.Worker.Name, &store.Outcome{Kind: store.HandedBack}, now)
			waiting = waiting || r.state == store.Pending
		}
	}
	s.hintIf(waiting)
	return 0, nil
}
