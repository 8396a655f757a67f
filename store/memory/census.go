package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// LimitKeys lists the keys of a limit for which most runs wait.
func (s *Store) LimitKeys(ctx context.Context, limit string, most int) (store.LimitKeys, error) {
	if err := firstOf(store.CheckKeysListed(most), ctx.Err()); err != nil {
		return store.LimitKeys{}, fmt.Errorf("limit keys: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.limits.byName[store.LimitName(limit)]
	if known == nil || known.State == store.LimitRemoved {
		return store.LimitKeys{}, fmt.Errorf("limit %s: %w", limit, store.ErrNotFound)
	}
	counts, now := s.countKeys(known), s.now()
	list := store.LimitKeys{Limit: known.Limit, Keys: []store.KeyUse{}, Known: store.Count{N: int64(counts.Len())}}
	for _, one := range counts.Top(most) {
		key, notBefore := "", time.Time{}
		if g := s.limits.gates[one.Gate]; g != nil {
			key, notBefore = g.key, g.notBefore
		}
		if key == "" && one.Line != 0 {
			key = admit.KeyOf(one.Gate, known.Secret, s.limits.gates[one.Line].first().limits)
		}
		if !notBefore.After(now) {
			notBefore = time.Time{}
		}
		list.Keys = append(list.Keys, one.KeyUse(key, timeOrNil(notBefore)))
	}
	return list, nil
}

// countKeys counts what waits for each key of a limit, and what is in use.
func (s *Store) countKeys(known *limit) *admit.KeyCounts {
	counts, now := &admit.KeyCounts{Limit: known.ID}, s.now()
	for id, g := range known.gates {
		if admit.IsSet(id) {
			for _, l := range g.lines {
				counts.WaitInSet(id, gatesOf(l.runs[0]), store.Count{N: int64(len(l.runs))}, l.runs[0].dueAt)
			}
			continue
		}
		for _, l := range g.lines {
			counts.Wait(id, id, store.Count{N: int64(len(l.runs))}, l.runs[0].dueAt)
		}
		for _, e := range g.round {
			if admit.LimitOf(e.Line) == known.ID {
				continue
			}
			if l := s.limits.gates[e.Line].lines[e.Lane]; l != nil {
				counts.Wait(id, e.Line, store.Count{N: int64(len(l.runs))}, l.runs[0].dueAt)
			}
		}
		if used, _ := g.used(now); used > 0 || g.notBefore.After(now) {
			counts.Of(id).InUse = used
		}
	}
	return counts
}

// gatesOf are the gates that a run needs, in their order.
func gatesOf(r *run) (gates []admit.GateID) {
	for i := range r.uses {
		gates = append(gates, r.uses[i].Gate)
	}
	return gates
}

// first is a run that waits in a line of the gate.
func (g *gate) first() *run {
	for _, l := range g.lines {
		return l.runs[0]
	}
	return &run{}
}
