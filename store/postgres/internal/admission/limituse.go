package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// UseLimit takes places or starts of a limit for code outside of runs.
func (m *Admitter) UseLimit(ctx context.Context, request store.LimitRequest) (store.LimitGrant, error) {
	what := "use limit " + request.Limit
	if err := rules.CheckLimitRequest(&request); err != nil {
		return store.LimitGrant{}, fmt.Errorf("%s: %w", what, err)
	}
	if err := m.schema.Usable(ctx); err != nil {
		return store.LimitGrant{}, m.db.Fail(what, err)
	}
	set := numbers.LimitSet{store.LimitName(request.Limit): nil}
	if err := m.numbers.FindLimits(ctx, m.db.General, set, false); err != nil {
		return store.LimitGrant{}, m.db.Fail(what, err)
	}
	known := set[store.LimitName(request.Limit)]
	if known == nil || known.State == store.LimitRemoved {
		return store.LimitGrant{}, fmt.Errorf("%s: %w", what, store.ErrNotFound)
	}
	if err := rules.CheckUsage(&request, &known.Limit); err != nil {
		return store.LimitGrant{}, fmt.Errorf("%s: %w", what, err)
	}
	u := usage{Admitter: m, request: &request, limit: &known.Limit, gates: admit.Gates(&known.Limit, request.Key)}
	if err := u.use(ctx); err != nil {
		return store.LimitGrant{}, m.db.Fail(what, err)
	}
	m.wake.HintFreed(u.freed, u.freed)
	return u.grant, nil
}

// usage is one UseLimit under way.
type usage struct {
	*Admitter

	tx      pgx.Tx
	request *store.LimitRequest
	limit   *store.Limit
	gates   []admit.GateID // that of the key, and, of a dynamic window, the one that all keys share
	most    time.Duration

	grant store.LimitGrant
	freed []store.LineID // the line of turns for a place that was given back, if a run waits for it
}

// usageTries bounds how often a use begins again because the sweep has deleted the shared
// gate of a dynamic window between its making and its locking.
const usageTries = 10

// use makes one transaction of it, again and again if a gate is missing.
func (u *usage) use(ctx context.Context) error {
	for try := 1; ; try++ {
		err := u.db.Briefly(ctx, conn.HeldLimit, conn.LockLimit, func(most time.Duration) error {
			return u.db.Repeat(ctx, func() error {
				return conn.InTx(ctx, u.db.General, func(tx pgx.Tx) error {
					u.tx, u.most, u.grant, u.freed = tx, most, store.LimitGrant{}, nil
					return u.run(ctx)
				})
			})
		})
		if !errors.Is(err, errNoParent) || try == usageTries {
			return err
		}
		if err := u.makeParent(ctx); err != nil {
			return err
		}
	}
}

// errNoParent has the gate made that all keys of a dynamic window share.
var errNoParent = errors.New("the gate that all keys of the limit share does not exist")

func (u *usage) makeParent(ctx context.Context) error {
	return u.db.Repeat(ctx, func() error {
		b := u.db.Guarded(ctx)
		b.Add(queries.MakeGate, int64(u.gates[1]), "")
		return u.db.Send(ctx, u.db.General, b)
	})
}

func (u *usage) run(ctx context.Context) error {
	gate, owner := int64(u.gates[0]), admit.OwnerID(u.request.Owner)
	switch u.request.Usage {
	case store.UsageGive:
		return u.give(ctx, gate, owner)
	case store.UsagePenalize:
		return u.penalize(ctx, gate)
	case store.UsageRenew, store.UsageAcquire:
		// No one else takes the place as lapsed while its renewal is not committed yet.
		extended, err := u.locked(ctx, queries.ExtendPermit, conn.Micro(u.request.For), gate, owner)
		if u.grant.Granted = extended > 0; u.grant.Granted {
			u.grant.Expires = u.request.For
		}
		if err != nil || u.grant.Granted || u.request.Usage == store.UsageRenew {
			return err
		}
	default:
		if _, err := u.locked(ctx, queries.Idle); err != nil {
			return err
		}
	}
	return u.take(ctx, owner)
}

// locked locks the gates, and waits for the admissions that have them; the statement that
// follows sees what those have done. It returns how many rows that statement has touched.
// The shared gate of a dynamic window comes first.
func (u *usage) locked(ctx context.Context, statement string, args ...any) (touched int64, err error) {
	gates, parents := u.gates, 0
	if u.request.Usage == store.UsagePenalize {
		gates = gates[:1]
	}
	b := u.db.GuardedFor(ctx, u.most)
	b.Add(queries.Idle)
	if len(gates) > 1 {
		b.Add(queries.LockParent, int64(gates[1])).Query(func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			parents = len(found)
			return err
		})
	}
	b.Add(queries.LockGate, int64(gates[0]), KeyOfGate(gates[0], u.request.Key))
	b.Add(statement, args...).Exec(func(tag pgconn.CommandTag) error {
		touched = tag.RowsAffected()
		return nil
	})
	if err = u.db.Send(ctx, u.tx, b); err == nil && parents != len(gates)-1 {
		err = errNoParent
	}
	return touched, err
}

// KeyOfGate is a key as its gate remembers it.
func KeyOfGate(gate admit.GateID, key string) string {
	if admit.Keyed(gate) {
		return key
	}
	return ""
}

// give gives places back. Because the gate is locked, a run that waits for it without a turn
// of its own is seen.
func (u *usage) give(ctx context.Context, gate int64, owner uuid.UUID) error {
	ended, err := u.locked(ctx, queries.EndPermit, gate, owner)
	if u.grant.Granted = ended > 0; err != nil || !u.grant.Granted {
		return err
	}
	u.freed, err = u.db.Queries(u.tx).AnnounceGate(ctx, queries.AnnounceGateParams{Gate: gate})
	return err
}

func (u *usage) penalize(ctx context.Context, gate int64) error {
	penalized, err := u.locked(ctx, queries.PenalizeGate, conn.Micro(u.request.For), gate)
	if err == nil && penalized != 1 {
		err = fmt.Errorf("%d gates were penalized instead of one", penalized)
	}
	u.grant.Granted = err == nil
	return err
}

// take asks the gates, which are locked, for places or starts.
func (u *usage) take(ctx context.Context, owner uuid.UUID) error {
	a := &admission{Admitter: u.Admitter, limits: map[store.LimitID]*store.Limit{}, names: map[admit.GateID]string{}}
	ids := make([]int64, len(u.gates))
	for i, gate := range u.gates {
		ids[i] = int64(gate)
	}
	var found []admit.Gate
	b := u.db.NewBatch()
	b.Add(queries.ReadLimits, ids).Query(a.scanLimits)
	b.Add(queries.ReadGates, ids).Query(func(rows pgx.Rows) error { return a.scanGates(rows, &found) })
	if err := u.db.Send(ctx, u.tx, b); err != nil {
		return err
	}
	for _, gate := range u.gates {
		for i := range found {
			if found[i].ID == gate {
				found[i].Limit = a.limits[u.limit.ID]
				a.input.Gates = append(a.input.Gates, found[i])
			}
		}
	}
	if len(a.input.Gates) != len(u.gates) || a.limits[u.limit.ID] == nil {
		return fmt.Errorf("%d of %d gates, and %d limits, were found after they were locked", len(a.input.Gates), len(u.gates), len(a.limits))
	}
	b = u.db.NewBatch()
	if a.addRates(b); b.Len() > 0 {
		if err := u.db.Send(ctx, u.tx, b); err != nil {
			return err
		}
	}
	return u.db.Send(ctx, u.tx, u.decide(a, owner))
}

// decide asks the gates, and returns what is to be written.
func (u *usage) decide(a *admission, owner uuid.UUID) *conn.Batch {
	b := u.db.NewBatch()
	now, weight := a.input.Now, max(u.request.Weight, 1)
	grant := &u.grant
	grant.Granted = true
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
		b.Add(queries.EndLapsed, a.lapsed)
	}
	if u.limit.Rate() {
		addRates(b, rates)
	} else if grant.Granted {
		grant.Expires = u.request.For
		b.Add(queries.InsertPermits, []int64{int64(a.input.Gates[0].ID)}, conn.UUIDs{owner}, []time.Time{now.Add(u.request.For)},
			[]int32{conn.Small(weight)}, []string{string(rune(store.UntilExpires))}, []string{"{}"})
	}
	if b.Len() == 0 {
		b.Add(queries.Idle)
	}
	return b
}
