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

// limitGatesSeen bounds the gates among which the next admission of a limit is looked
// for, and limitShown the permits and the waiters of a gate that are shown.
const (
	limitGatesSeen = 1000
	limitShown     = 100
)

// ListLimits lists the limits by name.
func (s *Store) ListLimits(ctx context.Context, filter store.LimitFilter) ([]store.LimitInfo, error) {
	if err := s.usable(ctx); err != nil {
		return nil, s.fail("list limits", err)
	}
	names := []string{}
	for _, name := range filter.Names {
		names = append(names, store.LimitName(name))
	}
	rows, err := s.queries(s.general).ListLimits(ctx, queries.ListLimitsParams{Names: names})
	if err != nil {
		return nil, s.fail("list limits", err)
	}
	infos := []store.LimitInfo{}
	b := s.guarded(ctx)
	for _, row := range rows {
		if !filter.Caps && store.IsCap(row.Name) {
			continue
		}
		infos = append(infos, store.LimitInfo{
			Limit: toLimit(&queries.ReadLimitsRow{ID: row.ID, Name: row.Name, Kind: row.Kind, Most: row.Most, Period: row.Period, Burst: row.Burst,
				Buckets: row.Buckets, KeyLeast: row.KeyLeast, KeyMost: row.KeyMost, Action: row.Action, RetryAfter: row.RetryAfter, State: row.State}),
			Edited: row.Edited, DeclaredAt: timesUTC(row.DeclaredAt),
		})
	}
	for i := range infos {
		info := &infos[i]
		first, last := gatesOf(info.ID)
		b.add(queries.LimitInUse, first, last, int32(countMost)).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&info.Waiting.N, &info.InUse.N)
			info.Waiting.Estimated, info.InUse.Estimated = info.Waiting.N == countMost, info.InUse.N >= countMost
			return err
		})
		b.add(queries.NextOfLimit, first, last, int32(limitGatesSeen)).Query(func(rows pgx.Rows) error {
			next, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
			for i := range next {
				info.NextAt = timesUTC(&next[i])
			}
			return err
		})
	}
	if len(infos) == 0 {
		return infos, nil
	}
	if err := s.send(ctx, s.general, b); err != nil {
		return nil, s.fail("list limits", err)
	}
	return infos, nil
}

// ChangeLimit changes a limit on behalf of an operator.
func (s *Store) ChangeLimit(ctx context.Context, change store.LimitChange) error {
	what := fmt.Sprintf("%s limit %s", change.Command, change.Limit.Name)
	if err := rules.CheckLimitCommand(&change); err != nil {
		return fmt.Errorf("%s limit: %w", change.Command, err)
	}
	if err := s.usable(ctx); err != nil {
		return s.fail(what, err)
	}
	var announce func() error
	err := s.briefly(ctx, heldLimit, lockLimit, func(most time.Duration) error {
		return s.repeat(ctx, func() error {
			return inTx(ctx, s.general, func(tx pgx.Tx) (err error) {
				c := limitChanging{Store: s, tx: tx, q: s.queries(tx), change: &change}
				lock, statement := limits(ctx, most)
				if err := c.q.Limits(ctx, queries.LimitsParams{LockTimeout: lock, StatementTimeout: statement}); err != nil {
					return err
				}
				announce, err = c.all(ctx)
				return err
			})
		})
	})
	if err == nil {
		s.limits.forget()
	}
	if err == nil && announce != nil {
		err = announce()
	}
	if err != nil {
		return s.fail(what, err)
	}
	s.hint()
	return nil
}

// limitChanging is one ChangeLimit under way.
type limitChanging struct {
	*Store

	tx     pgx.Tx
	q      *queries.Queries
	change *store.LimitChange
}

// all makes the change, and returns what is to be done when it is committed.
func (c *limitChanging) all(ctx context.Context) (announce func() error, err error) {
	name := store.LimitName(c.change.Limit.Name)
	switch c.change.Command {
	case store.ReleasePermit, store.PenalizeLimit:
		return nil, c.gate(ctx, name)
	case store.SetLimit:
		made, err := c.create(ctx, name)
		if made || err != nil {
			return nil, err
		}
	}
	rows, err := c.q.LockLimits(ctx, queries.LockLimitsParams{Names: []string{name}})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, store.ErrNotFound
	}
	known := toLimit((*queries.ReadLimitsRow)(&rows[0]))
	if known.State == store.LimitRemoved && c.change.Command != store.SetLimit && c.change.Command != store.DeleteLimit {
		return nil, store.ErrNotFound
	}
	if c.change.Command == store.DeleteLimit {
		if err := c.unused(ctx, &known); err != nil {
			return nil, err
		}
	}
	made, changes, err := rules.ChangedLimit(c.change, known)
	if err != nil || !changes {
		return nil, err
	}
	err = c.q.WriteLimit(ctx, queries.WriteLimitParams{ID: made.ID, Most: small(made.Max), Period: micro(made.Period), Burst: small(made.Burst),
		Buckets: small(made.Buckets), KeyLeast: small(made.Least), KeyMost: small(made.Most), Action: int16(made.WhenFull),
		RetryAfter: micro(made.RetryAfter), State: int16(made.State), Edits: c.change.Command == store.SetLimit})
	if err != nil {
		return nil, err
	}
	return func() error { return c.announceLimit(ctx, made.ID) }, c.audit(ctx, &made)
}

// create makes an operator's own limit, if there is none of its name.
func (c *limitChanging) create(ctx context.Context, name string) (made bool, err error) {
	rows, err := c.q.LockLimits(ctx, queries.LockLimitsParams{Names: []string{name}}) // CreateLimit would use up a number
	if err != nil || len(rows) > 0 {
		return false, err
	}
	l := c.change.Limit
	l.Name = name
	n, err := c.q.CreateLimit(ctx, queries.CreateLimitParams{Name: name, Kind: int16(l.Kind), Most: small(l.Max), Period: micro(l.Period),
		Burst: small(l.Burst), Buckets: small(l.Buckets), KeyLeast: small(l.Least), KeyMost: small(l.Most), Action: int16(l.WhenFull),
		RetryAfter: micro(l.RetryAfter)})
	if err != nil || n == 0 {
		return false, err
	}
	return true, c.audit(ctx, &l)
}

// unused refuses to delete a limit that is in use.
func (c *limitChanging) unused(ctx context.Context, known *store.Limit) error {
	first, last := gatesOf(known.ID)
	use, err := c.q.LimitInUse(ctx, queries.LimitInUseParams{First: first, Last: last, Most: countMost})
	if err == nil && use.Waiting+use.Held > 0 {
		err = rules.LimitInUse(known.Name, use.Waiting, use.Held)
	}
	return err
}

// gate ends a permit of one key, or penalizes it.
func (c *limitChanging) gate(ctx context.Context, name string) error {
	rows, err := c.q.FindLimits(ctx, queries.FindLimitsParams{Names: []string{name}})
	if err != nil {
		return err
	}
	if len(rows) == 0 || store.LimitState(rows[0].State) == store.LimitRemoved {
		return store.ErrNotFound
	}
	known := store.Limit{ID: rows[0].ID, Name: name, Kind: store.LimitKind(rows[0].Kind)}
	gate := int64(admit.GateOf(known.ID, c.change.Key))
	if c.change.Command == store.PenalizeLimit {
		err := c.q.MakeGate(ctx, queries.MakeGateParams{Gate: gate, Key: &c.change.Key})
		if err == nil {
			err = c.q.LockGate(ctx, queries.LockGateParams{Gate: gate})
		}
		if err == nil {
			err = c.q.PenalizeGate(ctx, queries.PenalizeGateParams{Gate: gate, NotBefore: c.change.NotBefore})
		}
		if err == nil {
			err = c.q.AnnounceGate(ctx, queries.AnnounceGateParams{Gate: gate, DueAt: c.change.NotBefore})
		}
		return err
	}
	n, err := c.q.EndPermit(ctx, queries.EndPermitParams{Gate: gate, Owner: c.change.Owner})
	if err != nil || n == 0 {
		return err
	}
	if err := c.q.AnnounceGate(ctx, queries.AnnounceGateParams{Gate: gate, DueAt: time.Unix(0, 0)}); err != nil {
		return err
	}
	return c.audit(ctx, &known)
}

func (c *limitChanging) audit(ctx context.Context, limit *store.Limit) error {
	return c.q.AuditChange(ctx, queries.AuditChangeParams{Actor: c.change.By, Kind: rules.KindLimit, Subject: limit.Name,
		Action: string(c.change.Command), Detail: string(rules.LimitDetail(c.change, limit))})
}

// Gate describes one key of a limit.
func (s *Store) Gate(ctx context.Context, limit, key string) (store.GateInfo, error) {
	if err := s.usable(ctx); err != nil {
		return store.GateInfo{}, s.fail("gate", err)
	}
	set := limitSet{store.LimitName(limit): nil}
	if err := s.findLimits(ctx, s.general, set, false); err != nil {
		return store.GateInfo{}, s.fail("gate", err)
	}
	known := set[store.LimitName(limit)]
	if known == nil || known.State == store.LimitRemoved {
		return store.GateInfo{}, fmt.Errorf("limit %s: %w", limit, store.ErrNotFound)
	}
	info := store.GateInfo{Limit: known.Limit, Key: key, Waiters: []store.Waiter{}}
	gate := int64(admit.GateOf(known.ID, key))
	b := s.guarded(ctx)
	b.add(queries.GateUse, gate, int32(countMost)).QueryRow(func(row pgx.Row) error {
		var next *time.Time
		err := row.Scan(&info.InUse, &info.Waiting.N, &next)
		if info.Waiting.Estimated = info.Waiting.N == countMost; info.Waiting.N > 0 {
			info.NextAt = timesUTC(next)
		}
		return err
	})
	b.add(queries.GatePermits, gate, int32(limitShown)).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.GatePermitsRow])
		for _, row := range found {
			info.Permits = append(info.Permits, store.PermitInfo{Owner: row.Owner, Places: int(row.K), Until: store.LimitUntil(row.Until[0]),
				ExpiresAt: timesUTC(row.ExpiresAt), Runs: row.Runs, Worker: row.Worker})
		}
		return err
	})
	b.add(queries.GateState, gate).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowTo[*time.Time])
		for _, at := range found {
			info.NotBefore = timesUTC(at)
		}
		if info.NextAt != nil && info.NotBefore != nil && info.NextAt.Before(*info.NotBefore) {
			info.NextAt = info.NotBefore
		}
		return err
	})
	b.add(queries.GateWaiters, gate, int32(limitShown), known.ID).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.GateWaitersRow])
		for _, row := range found {
			info.Waiters = append(info.Waiters, store.Waiter{Run: row.RunID, Job: row.Job, Queue: row.Queue, Priority: int(row.Priority), DueAt: row.DueAt.UTC()})
		}
		return err
	})
	if err := s.send(ctx, s.general, b); err != nil {
		return store.GateInfo{}, s.fail("gate", err)
	}
	return info, nil
}

// UseLimit takes places or starts of a limit for code outside of runs.
func (s *Store) UseLimit(ctx context.Context, request store.LimitRequest) (store.LimitGrant, error) {
	if err := rules.CheckLimitRequest(&request); err != nil {
		return store.LimitGrant{}, fmt.Errorf("use limit: %w", err)
	}
	if err := s.usable(ctx); err != nil {
		return store.LimitGrant{}, s.fail("use limit", err)
	}
	what := "use limit " + request.Limit
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
	case store.UsageRenew:
		grant, err := u.changed(ctx, queries.ExtendPermit, []any{micro(u.request.For), gate, owner}, "")
		return u.lasting(grant), err
	case store.UsageAcquire:
		if err := u.lock(ctx, gates); err != nil {
			return store.LimitGrant{}, err
		}
		grant, err := u.changed(ctx, queries.ExtendPermit, []any{micro(u.request.For), gate, owner}, "")
		if err != nil || grant.Granted {
			return u.lasting(grant), err
		}
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
		b = &batch{names: u.Store.names}
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
	b := &batch{names: u.Store.names}
	b.add(queries.ReadLimits, []int32{u.limit.ID}).Query(a.scanLimits)
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
	b = &batch{names: u.Store.names}
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
	b := &batch{names: u.Store.names}
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
