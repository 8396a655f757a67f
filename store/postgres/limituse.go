package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// UseLimit takes places or starts of a limit for code outside of runs.
func (s *Store) UseLimit(ctx context.Context, request store.LimitRequest) (store.LimitGrant, error) {
	what := "use limit " + request.Limit
	if err := rules.CheckLimitRequest(&request); err != nil {
		return store.LimitGrant{}, fmt.Errorf("%s: %w", what, err)
	}
	if err := s.usable(ctx); err != nil {
		return store.LimitGrant{}, s.fail(what, err)
	}
	set := limitSet{store.LimitName(request.Limit): nil}
	if err := s.findLimits(ctx, s.general, set, false); err != nil {
		return store.LimitGrant{}, s.fail(what, err)
	}
	known := set[store.LimitName(request.Limit)]
	if known == nil || known.State == store.LimitRemoved {
		return store.LimitGrant{}, fmt.Errorf("%s: %w", what, store.ErrNotFound)
	}
	if err := rules.CheckUsage(&request, &known.Limit); err != nil {
		return store.LimitGrant{}, fmt.Errorf("%s: %w", what, err)
	}
	var grant store.LimitGrant
	err := s.briefly(ctx, heldLimit, lockLimit, func(most time.Duration) error {
		return s.repeat(ctx, func() error {
			return inTx(ctx, s.general, func(tx pgx.Tx) (err error) {
				u := usage{Store: s, tx: tx, request: &request, limit: &known.Limit, most: most}
				grant, err = u.run(ctx)
				return err
			})
		})
	})
	if err != nil {
		return store.LimitGrant{}, s.fail(what, err)
	}
	if request.Usage == store.UsageGive && grant.Granted {
		s.hint()
	}
	return grant, nil
}

// usage is one UseLimit under way.
type usage struct {
	*Store

	tx      pgx.Tx
	request *store.LimitRequest
	limit   *store.Limit
	most    time.Duration
}

func (u *usage) run(ctx context.Context) (store.LimitGrant, error) {
	gates := admit.Gates(u.limit, u.request.Key)
	gate, owner := int64(gates[0]), admit.OwnerID(u.request.Owner)
	switch u.request.Usage {
	case store.UsageGive:
		return u.changed(ctx, queries.EndPermit, []any{gate, owner}, queries.AnnounceGate, gate, time.Unix(0, 0))
	case store.UsageRenew, store.UsageAcquire:
		// No one else takes the place as lapsed while its renewal is not committed yet.
		if err := u.lock(ctx, gates); err != nil {
			return store.LimitGrant{}, err
		}
		grant, err := u.changed(ctx, queries.ExtendPermit, []any{micro(u.request.For), gate, owner}, "")
		if err != nil || grant.Granted || u.request.Usage == store.UsageRenew {
			return u.lasting(grant), err
		}
	case store.UsagePenalize:
		if err := u.lock(ctx, gates[:1]); err != nil {
			return store.LimitGrant{}, err
		}
		return u.changed(ctx, queries.PenalizeGate, []any{micro(u.request.For), gate}, "")
	default:
		if err := u.lock(ctx, gates); err != nil {
			return store.LimitGrant{}, err
		}
	}
	return u.take(ctx, gates, owner)
}

func (u *usage) lasting(grant store.LimitGrant) store.LimitGrant {
	if grant.Granted {
		grant.Expires = u.request.For
	}
	return grant
}

// changed sends a statement that grants if it touches a row, and what follows then.
func (u *usage) changed(ctx context.Context, statement string, args []any, then string, more ...any) (store.LimitGrant, error) {
	var grant store.LimitGrant
	b := u.guardedFor(ctx, u.most)
	b.add(queries.Idle)
	b.add(statement, args...).Exec(func(tag pgconn.CommandTag) error {
		grant.Granted = tag.RowsAffected() > 0
		return nil
	})
	err := u.send(ctx, u.tx, b)
	if err == nil && grant.Granted && then != "" {
		b = &batch{names: u.names}
		b.add(then, more...)
		err = u.send(ctx, u.tx, b)
	}
	return grant, err
}

// lock locks the gates, and waits for the admissions that have them.
func (u *usage) lock(ctx context.Context, gates []admit.GateID) error {
	b := u.guardedFor(ctx, u.most)
	b.add(queries.Idle)
	for _, gate := range gates {
		key := ""
		if admit.Keyed(gate) {
			key = u.request.Key
		}
		b.add(queries.MakeGate, int64(gate), key)
		b.add(queries.LockGate, int64(gate))
	}
	return u.send(ctx, u.tx, b)
}

// take asks the gates, which are locked, for places or starts.
func (u *usage) take(ctx context.Context, gates []admit.GateID, owner uuid.UUID) (store.LimitGrant, error) {
	a := &admission{Store: u.Store, limits: map[store.LimitID]*store.Limit{}, names: map[admit.GateID]string{}}
	ids := make([]int64, len(gates))
	for i, gate := range gates {
		ids[i] = int64(gate)
	}
	var found []admit.Gate
	b := &batch{names: u.names}
	b.add(queries.ReadLimits, ids).Query(a.scanLimits)
	b.add(queries.ReadGates, ids).Query(func(rows pgx.Rows) error { return a.scanGates(rows, &found) })
	if err := u.send(ctx, u.tx, b); err != nil {
		return store.LimitGrant{}, err
	}
	for _, gate := range gates {
		for i := range found {
			if found[i].ID == gate {
				found[i].Limit = a.limits[u.limit.ID]
				a.input.Gates = append(a.input.Gates, found[i])
			}
		}
	}
	b = &batch{names: u.names}
	if a.addRates(b); b.Len() > 0 {
		if err := u.send(ctx, u.tx, b); err != nil {
			return store.LimitGrant{}, err
		}
	}
	grant, b := u.decide(a, owner)
	return grant, u.send(ctx, u.tx, b)
}

// decide is what the gates answer, and what is to be written.
func (u *usage) decide(a *admission, owner uuid.UUID) (store.LimitGrant, *batch) {
	b := &batch{names: u.names}
	now, weight := a.input.Now, max(u.request.Weight, 1)
	grant := store.LimitGrant{Granted: true}
	var rates []admit.GateRate
	if u.request.Usage == store.UsageCharge {
		for _, g := range a.input.Gates {
			rates = append(rates, admit.GateRate{Gate: g.ID, Rate: admit.Charge(now, weight, g)})
		}
	} else {
		for i, answer := range admit.Take(now, weight, a.input.Gates...) {
			rates = append(rates, admit.GateRate{Gate: a.input.Gates[i].ID, Rate: answer.Rate})
			grant.Granted = grant.Granted && answer.OK
			if !answer.Next.IsZero() {
				grant.RetryIn = max(grant.RetryIn, answer.Next.Sub(now))
			}
		}
	}
	if len(a.lapsed) > 0 {
		b.add(queries.EndLapsed, a.lapsed)
	}
	if u.limit.Rate() {
		addRates(b, rates)
	} else if grant.Granted {
		grant.Expires = u.request.For
		b.add(queries.InsertPermits, []int64{int64(a.input.Gates[0].ID)}, uuidArray{owner}, []time.Time{now.Add(u.request.For)},
			[]int32{small(weight)}, []string{string(rune(store.UntilExpires))}, []string{"{}"})
	}
	if b.Len() == 0 {
		b.add(queries.Idle)
	}
	return grant, b
}
