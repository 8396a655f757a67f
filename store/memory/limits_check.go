package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// CheckLimits looks for what must not be.
func (s *Store) CheckLimits(ctx context.Context) ([]store.LimitFault, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("check limits: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, faults, sorts := s.now(), []store.LimitFault{}, map[store.LimitFaultKind]int{}
	found := func(g *gate, kind store.LimitFaultKind, run store.RunID, used int) {
		if sorts[kind]++; sorts[kind] > rules.FaultsMost {
			return
		}
		name, most := "", 0
		if g.limit != nil {
			name, most = g.limit.Name, g.limit.Max
		}
		faults = append(faults, rules.LimitFault(kind, name, g.key, run, used, most))
	}
	for _, g := range s.limits.gates {
		used := s.checkPermits(g, now, found)
		s.checkLines(g, found)
		s.checkRound(g, now, used, found)
		if run, stuck := s.stuck(g, used, now); stuck {
			found(g, store.KeyStuck, run, used)
		}
	}
	return faults, nil
}

// checkPermits looks for permits that must not be, and counts the places that are held.
func (s *Store) checkPermits(g *gate, now time.Time, found func(*gate, store.LimitFaultKind, store.RunID, int)) (used int) {
	if g.limit == nil {
		return 0
	}
	var latest time.Time
	var holder store.RunID
	for _, p := range g.permits {
		if admit.Expired(p.expiresAt, now) {
			continue
		}
		used += min(p.weight, max(g.limit.Max, 1))
		if p.run == nil {
			continue
		}
		holder = p.run.id
		if p.run.startedAt.After(latest) {
			latest = p.run.startedAt
		}
		over := admit.Ends(p.until, p.run.state) || s.runs[p.run.id] != p.run
		if p.until == store.UntilSettled { // what its handler has completed is released when it is settled
			over = s.leases[lease.ClaimID(p.owner)] == nil
		}
		if over {
			found(g, store.PermitOrphaned, p.run.id, p.weight)
		}
	}
	if used > g.limit.Max && g.limit.State < store.LimitOff && latest.After(g.limit.hashAt) && !s.limitChangedSince(g.limit.Name, latest) {
		found(g, store.LimitExceeded, holder, used)
	}
	return used
}

// limitChangedSince reports whether an operator has changed a limit since an instant.
func (s *Store) limitChangedSince(name string, at time.Time) bool {
	for i := range s.audit {
		if c := &s.audit[i]; c.kind == rules.KindLimit && c.subject == name && !c.at.Before(at) {
			return true
		}
	}
	return false
}

// checkLines looks for runs in lines that are not their own.
func (s *Store) checkLines(g *gate, found func(*gate, store.LimitFaultKind, store.RunID, int)) {
	for lane, l := range g.lines {
		for _, r := range l.runs {
			if r.state != store.Pending || r.gate != g || r.laneID() != lane {
				found(g, store.RunMisplaced, r.id, 0)
			}
		}
	}
}

// checkRound looks for entries without a run, and for lines that wait for a gate that
// has room for their first run and no turn.
func (s *Store) checkRound(g *gate, now time.Time, used int, found func(*gate, store.LimitFaultKind, store.RunID, int)) {
	for _, e := range g.round {
		line := s.limits.gates[e.Line]
		if line == nil || line.entries[e.Lane] != e {
			found(g, store.RunMisplaced, store.RunID{}, 0)
			continue
		}
		l := line.lines[e.Lane]
		if l == nil || l.runs[0].dueAt.After(now) || !s.limits.turns.soonest(g.id).IsZero() {
			continue
		}
		if first := l.runs[0]; admit.Announced(&g.limit.Limit, used, first.weightAt(g.id)) {
			found(g, store.KeyStuck, first.id, used)
		}
	}
}

// weightAt is how many places of a gate a run needs.
func (r *run) weightAt(gate admit.GateID) int {
	for i := range r.uses {
		if r.uses[i].Gate == gate {
			return r.uses[i].Weight
		}
	}
	return 1
}

// stuck is the first run of a lane that is due at a gate with room for it, and that no turn
// announces. Those behind a heavier one need none: its leaving inserts one.
func (s *Store) stuck(g *gate, used int, now time.Time) (store.RunID, bool) {
	if !s.limits.turns.soonest(g.id).IsZero() {
		return store.RunID{}, false
	}
	var rule *store.Limit
	if g.limit != nil {
		rule = &g.limit.Limit
	}
	for lane, l := range g.lines {
		if g.elsewhere(lane) || len(l.runs) == 0 || l.runs[0].dueAt.After(now) {
			continue
		}
		first := l.runs[0]
		if admit.Announced(rule, used, first.weightAt(g.id)) {
			return first.id, true
		}
	}
	return store.RunID{}, false
}
