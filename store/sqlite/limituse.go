package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// UseLimit takes places or starts of a limit for code outside of runs.
func (s *Store) UseLimit(ctx context.Context, request store.LimitRequest) (store.LimitGrant, error) {
	if err := rules.CheckLimitRequest(&request); err != nil {
		return store.LimitGrant{}, fmt.Errorf("use limit %s: %w", request.Limit, err)
	}
	var grant store.LimitGrant
	err := s.write(ctx, claims, func(ctx context.Context, c *change) (err error) {
		grant, err = c.useLimit(ctx, &request)
		return err
	})
	if err != nil {
		return store.LimitGrant{}, fmt.Errorf("use limit %s: %w", request.Limit, err)
	}
	return grant, nil
}

func (c *change) useLimit(ctx context.Context, request *store.LimitRequest) (grant store.LimitGrant, err error) {
	known, err := c.allLimits(ctx)
	if err != nil {
		return grant, err
	}
	limit := known.find(store.LimitName(request.Limit))
	if limit == nil || limit.State == store.LimitRemoved {
		return grant, store.ErrNotFound
	}
	if err := rules.CheckUsage(request, limit); err != nil {
		return grant, err
	}
	gates := admit.Gates(limit, request.Key)
	switch request.Usage {
	case store.UsageGive:
		grant.Granted, err = c.giveBack(ctx, gates[0], admit.OwnerID(request.Owner))
		return grant, err
	case store.UsageRenew:
		return c.renewPlaces(ctx, gates[0], request)
	case store.UsageAcquire:
		return c.acquire(ctx, gates[0], request)
	case store.UsagePenalize:
		grant.Granted = true
		return grant, c.SavePenalty(ctx, queries.SavePenaltyParams{Gate: int64(gates[0]), NotBefore: c.now + request.For.Microseconds()})
	default:
		return c.takeStarts(ctx, gates, request)
	}
}

// takeStarts takes starts of all gates, or of none; or charges them, past the
// limit too.
func (c *change) takeStarts(ctx context.Context, gates []admit.GateID, request *store.LimitRequest) (store.LimitGrant, error) {
	grant, weight := store.LimitGrant{Granted: true}, max(request.Weight, 1)
	read := make([]admit.Gate, len(gates))
	for i, gate := range gates {
		var err error
		if read[i], err = c.gateNow(ctx, gate); err != nil {
			return grant, err
		}
	}
	var answers []admit.Taken
	if request.Usage == store.UsageTake {
		answers = admit.Take(instant(c.now), weight, read...)
	}
	for i := range gates {
		var rate admit.Rate
		if request.Usage == store.UsageCharge {
			rate = admit.Charge(instant(c.now), weight, read[i])
		} else {
			rate, grant.Granted = answers[i].Rate, grant.Granted && answers[i].OK
			grant.RetryIn = max(grant.RetryIn, c.until(answers[i].Next))
		}
		if err := c.saveRate(ctx, gates[i], rate); err != nil {
			return grant, err
		}
	}
	return grant, nil
}

// until is how long it is to an instant; to the zero time nothing.
func (c *change) until(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return at.Sub(instant(c.now))
}

// acquire takes places for a named owner, which has them for longer if it has
// them already.
func (c *change) acquire(ctx context.Context, gate admit.GateID, request *store.LimitRequest) (store.LimitGrant, error) {
	grant, err := c.renewPlaces(ctx, gate, request)
	if err != nil || grant.Granted {
		return grant, err
	}
	read, err := c.gateNow(ctx, gate)
	if err != nil {
		return grant, err
	}
	weight := max(request.Weight, 1)
	answer := admit.Take(instant(c.now), weight, read)[0]
	if !answer.OK {
		return store.LimitGrant{RetryIn: c.until(answer.Next)}, nil
	}
	owner := admit.OwnerID(request.Owner)
	return store.LimitGrant{Granted: true, Expires: request.For}, c.InsertPermit(ctx, queries.InsertPermitParams{
		Gate: int64(gate), Owner: owner[:], RunID: []byte{}, Weight: int64(weight), Until: int64(store.UntilExpires),
		ExpiresAt: c.now + request.For.Microseconds(),
	})
}

// renewPlaces lets a named owner have its places for longer, if it has any.
func (c *change) renewPlaces(ctx context.Context, gate admit.GateID, request *store.LimitRequest) (store.LimitGrant, error) {
	owner := admit.OwnerID(request.Owner)
	rows, err := c.RenewPermit(ctx, queries.RenewPermitParams{ExpiresAt: c.now + request.For.Microseconds(), Gate: int64(gate), Owner: owner[:], Now: c.now})
	if err != nil || rows == 0 {
		return store.LimitGrant{}, err
	}
	return store.LimitGrant{Granted: true, Expires: request.For}, nil
}
