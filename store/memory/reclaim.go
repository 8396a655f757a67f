package memory

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// Reclaim takes back the runs of expired leases, the longest expired first.
func (s *Store) Reclaim(ctx context.Context, request store.ReclaimRequest) (store.ReclaimResult, error) {
	if err := ctx.Err(); err != nil {
		return store.ReclaimResult{}, fmt.Errorf("reclaim: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	expired := s.expired(now, request)
	done := store.ReclaimResult{Now: now, Soon: s.expireBefore(now.Add(request.Ahead))}
	waiting := false
	defer func() { s.hintIf(waiting) }()
	most := request.Runs
	if most <= 0 {
		most = math.MaxInt
	}
	for _, claim := range expired {
		l, before := s.leases[claim], len(done.Runs)
		for _, r := range l.runs {
			if r.claim != claim || r.state != store.Running {
				continue
			}
			if len(done.Runs) == most { // of this lease more are left
				if len(done.Runs) > before {
					l.expiresAt = time.Time{} // it is not renewed any more
				}
				return done, nil
			}
			s.crash(r, l, request.MaxCrashes, now)
			waiting = waiting || r.state == store.Pending
			done.Runs = append(done.Runs, store.ReclaimedRun{
				ID: r.id, Lane: r.laneID(), Job: r.lane.name.job, Queue: r.lane.name.queue,
				Worker: l.worker.Name, State: r.state, CrashCount: r.crashCount,
			})
		}
		delete(s.leases, claim)
		done.Leases++
	}
	return done, nil
}

// expireBefore reports whether a lease has expired at an instant.
func (s *Store) expireBefore(at time.Time) bool {
	for _, l := range s.leases {
		if !l.expiresAt.After(at) {
			return true
		}
	}
	return false
}

// expired lists the claims to look at.
func (s *Store) expired(now time.Time, request store.ReclaimRequest) []lease.ClaimID {
	latest := now
	if !request.Horizon.IsZero() && request.Horizon.Before(now) {
		latest = request.Horizon
	}
	var claims []lease.ClaimID
	for claim, l := range s.leases {
		if !l.expiresAt.After(latest) {
			claims = append(claims, claim)
		}
	}
	slices.SortFunc(claims, func(a, b lease.ClaimID) int {
		if c := s.leases[a].expiresAt.Compare(s.leases[b].expiresAt); c != 0 {
			return c
		}
		return bytes.Compare(a[:], b[:])
	})
	return claims[:min(len(claims), max(request.Limit, 0))]
}

// crash ends an execution whose worker is gone. The claim leaves the run, so
// that whatever the worker may still write is refused.
func (s *Store) crash(r *run, l *held, maxCrashes int, now time.Time) {
	r.crashCount = rules.Crashes(r.crashCount)
	r.record(l.worker.Name, &store.Outcome{Kind: store.Crash, Error: rules.CrashError(l.worker.Name, r.crashCount)}, now)
	r.attempt--
	r.claim = lease.ClaimID{}
	state, reason := rules.Crash(rules.Crashed{
		Policy: r.onCrash, Crashes: r.crashCount, Most: maxCrashes, Alone: l.alone, CancelReason: rules.TextOrNil(r.cancel)})
	s.become(r, state, reason, now)
}

// become gives a run that its claim has lost what a rule has made of it: it waits
// again, or has ended for a reason.
func (s *Store) become(r *run, state store.State, reason string, now time.Time) {
	if state == store.Pending {
		s.wait(r, now, now)
		return
	}
	r.dueAt = now
	s.finish(r, state, reason, now)
}
