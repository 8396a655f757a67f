package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// UseLimit takes places or starts of a limit for code outside of runs.
func (s *Store) UseLimit(ctx context.Context, request store.LimitRequest) (store.LimitGrant, error) {
	if err := firstOf(ctx.Err(), rules.CheckLimitRequest(&request)); err != nil {
		return store.LimitGrant{}, fmt.Errorf("use limit %s: %w", request.Limit, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	grant, err := s.useLimit(&request, s.now())
	if err != nil {
		return store.LimitGrant{}, fmt.Errorf("use limit %s: %w", request.Limit, err)
	}
	s.hintIf(false)
	return grant, nil
}

func (s *Store) useLimit(request *store.LimitRequest, now time.Time) (store.LimitGrant, error) {
	known := s.limits.byName[store.LimitName(request.Limit)]
	if known == nil || known.State == store.LimitRemoved {
		return store.LimitGrant{}, store.ErrNotFound
	}
	if err := rules.CheckUsage(request, &known.Limit); err != nil {
		return store.LimitGrant{}, err
	}
	var gates []*gate
	for _, id := range admit.Gates(&known.Limit, request.Key) {
		gates = append(gates, s.limits.gate(id))
	}
	switch g, weight := gates[0], max(request.Weight, 1); request.Usage {
	case store.UsageCharge:
		a := admitting{Store: s, now: now}
		for _, g := range gates {
			g.rate = admit.Charge(now, weight, a.readGate(g, false))
			g.refunds = nil
		}
		return store.LimitGrant{Granted: true}, nil
	case store.UsageTake:
		return s.takeStarts(gates, weight, now), nil
	case store.UsageGive:
		return store.LimitGrant{Granted: s.giveBack(g, admit.OwnerID(request.Owner), now)}, nil
	case store.UsageRenew:
		return g.renew(request, now), nil
	case store.UsagePenalize:
		if end := micro(now.Add(request.For)); end.After(g.notBefore) {
			g.notBefore = end
		}
		return store.LimitGrant{Granted: true}, nil
	default:
		return s.acquire(g, request, now), nil
	}
}

// takeStarts takes starts of all gates, or of none.
func (s *Store) takeStarts(gates []*gate, weight int, now time.Time) store.LimitGrant {
	a := admitting{Store: s, now: now}
	read := make([]admit.Gate, len(gates))
	for i, g := range gates {
		read[i] = a.readGate(g, false)
	}
	answers := admit.Take(now, weight, read...)
	grant := store.LimitGrant{Granted: true}
	for i, answer := range answers {
		gates[i].rate, gates[i].refunds = answer.Rate, nil
		grant.Granted = grant.Granted && answer.OK
		if !answer.Next.IsZero() {
			grant.RetryIn = max(grant.RetryIn, answer.Next.Sub(now))
		}
	}
	return grant
}

// acquire takes places for a named owner, which has them for longer if it has
// them already.
func (s *Store) acquire(g *gate, request *store.LimitRequest, now time.Time) store.LimitGrant {
	if grant := g.renew(request, now); grant.Granted {
		return grant
	}
	a := admitting{Store: s, now: now}
	answer := admit.Take(now, max(request.Weight, 1), a.readGate(g, false))[0]
	if !answer.OK {
		grant := store.LimitGrant{}
		if !answer.Next.IsZero() {
			grant.RetryIn = answer.Next.Sub(now)
		}
		return grant
	}
	g.grant(&permit{owner: admit.OwnerID(request.Owner), weight: max(request.Weight, 1), until: store.UntilExpires, expiresAt: micro(now.Add(request.For))})
	return store.LimitGrant{Granted: true, Expires: request.For}
}

// renew lets a named owner have its places for longer, if it has any.
func (g *gate) renew(request *store.LimitRequest, now time.Time) store.LimitGrant {
	p := g.ownedBy(admit.OwnerID(request.Owner), now)
	if p == nil {
		return store.LimitGrant{}
	}
	p.expiresAt = micro(now.Add(request.For))
	return store.LimitGrant{Granted: true, Expires: request.For}
}
