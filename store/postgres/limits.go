package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
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
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("list limits", err)
	}
	names := []string{}
	for _, name := range filter.Names {
		names = append(names, store.LimitName(name))
	}
	rows, err := s.db.Queries(s.db.Reading).ListLimits(ctx, queries.ListLimitsParams{Names: names})
	if err != nil {
		return nil, s.db.Fail("list limits", err)
	}
	infos := []store.LimitInfo{}
	b := s.db.Guarded(ctx)
	for _, row := range rows {
		if !filter.Caps && store.IsCap(row.Name) {
			continue
		}
		infos = append(infos, store.LimitInfo{
			Limit: toLimit(&queries.ReadLimitsRow{ID: row.ID, Name: row.Name, Kind: row.Kind, Most: row.Most, Period: row.Period, Burst: row.Burst,
				Buckets: row.Buckets, KeyLeast: row.KeyLeast, KeyMost: row.KeyMost, Action: row.Action, RetryAfter: row.RetryAfter, State: row.State, Secret: row.Secret}),
			Edited: row.Edited, DeclaredAt: conn.TimesUTC(row.DeclaredAt),
		})
	}
	for i := range infos {
		info := &infos[i]
		info.Done = s.tally.Of(info.ID)
		first, last := gatesOf(info.ID)
		b.Add(queries.LimitInUse, first, last, int32(countMost)).QueryRow(func(row pgx.Row) error {
			var oldest time.Time
			err := row.Scan(&info.Waiting.N, &info.InUse.N, &oldest)
			if info.Waiting.N > 0 {
				info.OldestDue = conn.TimesUTC(&oldest)
			}
			info.Waiting.AtLeast, info.InUse.AtLeast = info.Waiting.N == countMost, info.InUse.N >= countMost
			return err
		})
		b.Add(queries.NextOfLimit, first-1, last, int32(limitGatesSeen)).Query(func(rows pgx.Rows) error {
			next, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
			for i := range next {
				info.NextAt = conn.TimesUTC(&next[i])
			}
			return err
		})
	}
	if len(infos) == 0 {
		return infos, nil
	}
	if err := s.db.Send(ctx, s.db.Reading, b); err != nil {
		return nil, s.db.Fail("list limits", err)
	}
	return infos, nil
}

// ChangeLimit changes a limit on behalf of an operator.
func (s *Store) ChangeLimit(ctx context.Context, change store.LimitChange) error {
	what := fmt.Sprintf("%s limit %s", change.Command, change.Limit.Name)
	if err := rules.CheckLimitCommand(&change); err != nil {
		return fmt.Errorf("%s limit: %w", change.Command, err)
	}
	if err := s.schema.Usable(ctx); err != nil {
		return s.db.Fail(what, err)
	}
	var announce func() error
	var freed []store.LineID
	err := s.db.Briefly(ctx, conn.HeldLimit, conn.LockLimit, func(most time.Duration) error {
		return s.db.Repeat(ctx, func() error {
			return conn.InTx(ctx, s.db.General, func(tx pgx.Tx) (err error) {
				c := limitChanging{Store: s, tx: tx, q: s.db.Queries(tx), change: &change}
				defer func() { freed = c.freed }()
				lock, statement := conn.Limits(ctx, most)
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
		return s.db.Fail(what, err)
	}
	if change.Command == store.ReleasePermit || change.Command == store.LiftPenalty { // of one key
		s.wake.HintFreed(freed, freed)
	} else {
		s.wake.Hint()
	}
	return nil
}

// limitChanging is one ChangeLimit under way.
type limitChanging struct {
	*Store

	tx     pgx.Tx
	q      *queries.Queries
	change *store.LimitChange
	freed  []store.LineID // the line of the turn for one key, if a run waits for it
}

// all makes the change, and returns what is to be done when it is committed.
func (c *limitChanging) all(ctx context.Context) (announce func() error, err error) {
	name := store.LimitName(c.change.Limit.Name)
	switch c.change.Command {
	case store.ReleasePermit, store.LiftPenalty:
		return nil, c.gate(ctx, name)
	}
	queue, caps := store.CappedQueue(name)
	if caps { // before the limit, as who makes lanes
		if _, err := c.q.LockQueue(ctx, queries.LockQueueParams{Name: queue}); err != nil {
			return nil, err
		}
	}
	if c.change.Command == store.SetLimit {
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
	if err == nil && caps {
		err = c.capQueue(ctx, queue, &made)
	}
	if err != nil || !changes {
		return nil, err
	}
	err = c.q.WriteLimit(ctx, queries.WriteLimitParams{ID: made.ID, Most: conn.Small(made.Max), Period: conn.Micro(made.Period), Burst: conn.Small(made.Burst),
		Buckets: conn.Small(made.Buckets), KeyLeast: conn.Small(made.Least), KeyMost: conn.Small(made.Most), Action: int16(made.WhenFull),
		RetryAfter: conn.Micro(made.RetryAfter), State: int16(made.State), Edits: c.change.Command == store.SetLimit})
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
	n, err := c.q.CreateLimit(ctx, queries.CreateLimitParams{Name: name, Secret: rules.SecretOf(&l), Kind: int16(l.Kind), Most: conn.Small(l.Max), Period: conn.Micro(l.Period),
		Burst: conn.Small(l.Burst), Buckets: conn.Small(l.Buckets), KeyLeast: conn.Small(l.Least), KeyMost: conn.Small(l.Most), Action: int16(l.WhenFull),
		RetryAfter: conn.Micro(l.RetryAfter)})
	if err != nil || n == 0 {
		return false, err
	}
	if queue, caps := store.CappedQueue(name); caps {
		rows, err := c.q.LockLimits(ctx, queries.LockLimitsParams{Names: []string{name}})
		if err != nil {
			return false, err
		}
		l.ID = rows[0].ID
		if err := c.capQueue(ctx, queue, &l); err != nil {
			return false, err
		}
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

// gate ends a permit of one key, or its penalty.
func (c *limitChanging) gate(ctx context.Context, name string) error {
	rows, err := c.q.FindLimits(ctx, queries.FindLimitsParams{Names: []string{name}})
	if err != nil {
		return err
	}
	if len(rows) == 0 || store.LimitState(rows[0].State) == store.LimitRemoved {
		return store.ErrNotFound
	}
	known := store.Limit{ID: rows[0].ID, Name: name, Kind: store.LimitKind(rows[0].Kind), Secret: rows[0].Secret}
	gate := int64(admit.GateOf(&known, c.change.Key))
	if err := c.q.LockGate(ctx, queries.LockGateParams{Gate: gate, Key: keyOfGate(admit.GateID(gate), c.change.Key)}); err != nil {
		return err
	}
	var n int64
	if c.change.Command == store.LiftPenalty {
		n, err = c.q.EndPenalty(ctx, queries.EndPenaltyParams{Gate: gate})
	} else {
		n, err = c.q.EndPermit(ctx, queries.EndPermitParams{Gate: gate, Owner: c.change.Owner})
	}
	if err != nil || n == 0 {
		return err
	}
	if c.freed, err = c.q.AnnounceGate(ctx, queries.AnnounceGateParams{Gate: gate}); err != nil {
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
	if err := s.schema.Usable(ctx); err != nil {
		return store.GateInfo{}, s.db.Fail("gate", err)
	}
	set := limitSet{store.LimitName(limit): nil}
	if err := s.findLimits(ctx, s.db.Reading, set, false); err != nil {
		return store.GateInfo{}, s.db.Fail("gate", err)
	}
	known := set[store.LimitName(limit)]
	if known == nil || known.State == store.LimitRemoved {
		return store.GateInfo{}, fmt.Errorf("limit %s: %w", limit, store.ErrNotFound)
	}
	info := store.GateInfo{Limit: known.Limit, Key: key}
	b := s.db.Guarded(ctx)
	askGate(b, &info)
	if err := s.db.Send(ctx, s.db.Reading, b); err != nil {
		return store.GateInfo{}, s.db.Fail("gate", err)
	}
	return info, nil
}

// askGate reads everything about one key of a limit, which info names.
func askGate(b *conn.Batch, info *store.GateInfo) {
	gate := int64(admit.GateOf(&info.Limit, info.Key))
	b.Add(queries.GateUse, gate, int32(countMost)).QueryRow(func(row pgx.Row) error {
		var next *time.Time
		err := row.Scan(&info.InUse, &info.Waiting.N, &next)
		if info.Waiting.AtLeast = info.Waiting.N == countMost; info.Waiting.N > 0 {
			info.NextAt = conn.TimesUTC(next)
		}
		return err
	})
	b.Add(queries.GatePermits, gate, int32(limitShown)).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.GatePermitsRow])
		info.Permits = nil
		for _, row := range found {
			info.Permits = append(info.Permits, store.PermitInfo{Owner: row.Owner, Places: int(row.K), Until: store.LimitUntil(row.Until[0]),
				ExpiresAt: conn.TimesUTC(row.ExpiresAt), Runs: row.Runs, Worker: row.Worker})
		}
		return err
	})
	b.Add(queries.GateState, gate).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowTo[*time.Time])
		for _, at := range found {
			info.NotBefore = conn.TimesUTC(at)
		}
		if info.NextAt != nil && info.NotBefore != nil && info.NextAt.Before(*info.NotBefore) {
			info.NextAt = info.NotBefore
		}
		return err
	})
	b.Add(queries.GateWaiters, int32(limitShown), gate, info.Limit.ID).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[queries.GateWaitersRow])
		info.Waiters = []store.Waiter{}
		for _, row := range found {
			info.Waiters = append(info.Waiters, store.Waiter{Run: row.RunID, Job: row.Job, Queue: row.Queue, Priority: int(row.Priority), DueAt: row.DueAt.UTC()})
		}
		return err
	})
}

// CheckLimits looks for violations of the invariants of limits.
func (s *Store) CheckLimits(ctx context.Context) ([]store.LimitFault, error) {
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("check limits", err)
	}
	rows, err := s.limitFaults(ctx)
	if err != nil {
		return nil, s.db.Fail("check limits", err)
	}
	faults := make([]store.LimitFault, len(rows))
	for i := range rows {
		row := &rows[i]
		run, _ := uuid.Parse(row.Run) // empty: none
		faults[i] = rules.LimitFault(store.LimitFaultKind(row.Fault), row.Name, row.Key, run, int(row.Used), int(row.Most))
	}
	return faults, nil
}

func (s *Store) limitFaults(ctx context.Context) (found []queries.CheckLimitsRow, err error) {
	b := s.db.Guarded(ctx)
	b.Add(queries.CheckLimits, int32(rules.FaultsGates), int32(rules.FaultsMost), int32(rules.FaultsLines)).Query(func(rows pgx.Rows) error {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[queries.CheckLimitsRow])
		return err
	})
	return found, s.db.Send(ctx, s.db.General, b)
}
