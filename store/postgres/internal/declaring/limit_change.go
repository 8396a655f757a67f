package declaring

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/admission"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
	"github.com/durable-worker/durable-worker/store/postgres/internal/reading"
)

// ChangeLimit changes a limit on behalf of an operator.
func (dc *Declarer) ChangeLimit(ctx context.Context, change store.LimitChange) error {
	what := fmt.Sprintf("%s limit %s", change.Command, change.Limit.Name)
	if err := rules.CheckLimitCommand(&change); err != nil {
		return fmt.Errorf("%s limit: %w", change.Command, err)
	}
	if err := dc.schema.Usable(ctx); err != nil {
		return dc.db.Fail(what, err)
	}
	var announce func() error
	var freed []store.LineID
	err := dc.db.Briefly(ctx, conn.HeldLimit, conn.LockLimit, func(most time.Duration) error {
		return dc.db.Repeat(ctx, func() error {
			return conn.InTx(ctx, dc.db.General, func(tx pgx.Tx) (err error) {
				c := limitChanging{Declarer: dc, tx: tx, q: dc.db.Queries(tx), change: &change}
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
		dc.numbers.ForgetLimits()
	}
	if err == nil && announce != nil {
		err = announce()
	}
	if err != nil {
		return dc.db.Fail(what, err)
	}
	if change.Command == store.ReleasePermit || change.Command == store.LiftPenalty { // of one key
		dc.wake.HintFreed(freed, freed)
	} else {
		dc.wake.Hint()
	}
	return nil
}

// limitChanging is one ChangeLimit under way.
type limitChanging struct {
	*Declarer

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
	known := numbers.LimitOf((*queries.ReadLimitsRow)(&rows[0]))
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
	first, last := numbers.GatesOf(known.ID)
	use, err := c.q.LimitInUse(ctx, queries.LimitInUseParams{First: first, Last: last, Most: reading.CountMost})
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
	if err := c.q.LockGate(ctx, queries.LockGateParams{Gate: gate, Key: admission.KeyOfGate(admit.GateID(gate), c.change.Key)}); err != nil {
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

// capQueue makes a queue capped as its cap says, after it was changed.
func (c *limitChanging) capQueue(ctx context.Context, queue string, limit *store.Limit) error {
	gate := int64(0)
	if limit.State == store.LimitActive || limit.State == store.LimitDraining {
		gate = int64(admit.Unkeyed(limit.ID))
	}
	if err := c.q.CapQueue(ctx, queries.CapQueueParams{Gate: gate, Name: queue}); err != nil {
		return err
	}
	if err := c.q.SetLanesPaused(ctx, queries.SetLanesPausedParams{Queue: queue}); err != nil {
		return err
	}
	return c.q.CapLanes(ctx, queries.CapLanesParams{Queue: queue})
}
