package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// waitingMost bounds the runs of a limit that are counted.
const waitingMost = 10_000

// shown bounds the permits and the waiters of a key that are shown.
const shown = 100

// limitRow is what a row keeps of a limit that has changed.
func limitRow(limit *store.Limit, known *queries.Limit) queries.UpdateLimitParams {
	return queries.UpdateLimitParams{
		ID: known.ID, Most: int64(limit.Max), Period: limit.Period.Microseconds(), Burst: int64(limit.Burst), Buckets: int64(limit.Buckets),
		LeastShare: int64(limit.Least), MostShare: int64(limit.Most), Action: int64(limit.WhenFull), RetryAfter: limit.RetryAfter.Microseconds(),
		State: int64(limit.State), Hash: known.Hash, Edited: known.Edited, DeclaredAt: known.DeclaredAt, HashAt: known.HashAt, BroughtAt: known.BroughtAt,
	}
}

// newLimit is the row of a new limit.
func newLimit(limit *store.Limit) queries.InsertLimitParams {
	secret := rules.SecretOf(limit)
	return queries.InsertLimitParams{
		Name: store.LimitName(limit.Name), Kind: int64(limit.Kind), Most: int64(limit.Max), Period: limit.Period.Microseconds(), Burst: int64(limit.Burst),
		Buckets: int64(limit.Buckets), LeastShare: int64(limit.Least), MostShare: int64(limit.Most), Action: int64(limit.WhenFull),
		RetryAfter: limit.RetryAfter.Microseconds(), Secret: secret[:],
	}
}

// declareLimit stores what a worker that started at an instant declares. It
// returns the limit when other values are in effect from now on; zero: none.
func (c *change) declareLimit(ctx context.Context, declared *store.Limit, started int64) (store.LimitID, error) {
	if err := store.CheckLimit(*declared); err != nil {
		return 0, err
	}
	known, err := c.allLimits(ctx)
	if err != nil {
		return 0, err
	}
	hash := declared.Hash()
	row := known.byName[store.LimitName(declared.Name)]
	if row == nil {
		c.limits = nil // it is read again
		insert := newLimit(declared)
		insert.Hash, insert.DeclaredAt, insert.HashAt, insert.BroughtAt = hash, &c.now, c.now, started
		_, err := c.InsertLimit(ctx, insert)
		return 0, err
	}
	limit := limitOf(row)
	made, err := rules.DeclareLimit(*declared, &limit)
	if err != nil {
		return 0, err
	}
	row.DeclaredAt = &c.now
	version := rules.Declared{Hash: row.Hash, At: instant(row.HashAt), Brought: instant(row.BroughtAt)}
	changed := store.LimitID(0)
	switch {
	case row.Hash == hash:
		row.HashAt = c.now
	case rules.Supersedes(hash, instant(started), version, instant(c.now)):
		row.Hash, row.HashAt, row.BroughtAt, row.Edited = hash, c.now, started, 0
		limit, changed, c.limits = *made, limit.ID, nil
	}
	return changed, c.UpdateLimit(ctx, limitRow(&limit, row))
}

// ListLimits lists the limits by name.
func (s *Store) ListLimits(ctx context.Context, filter store.LimitFilter) ([]store.LimitInfo, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("list limits: %w", s.explain(err))
	}
	rows, err := reader.ListLimits(ctx)
	if err != nil {
		return nil, fmt.Errorf("list limits: %w", s.explain(err))
	}
	named := func(name string) bool {
		return slices.ContainsFunc(filter.Names, func(wanted string) bool { return store.LimitName(wanted) == name })
	}
	infos := []store.LimitInfo{}
	for i := range rows {
		limit := limitOf(&rows[i])
		if limit.State == store.LimitRemoved || len(filter.Names) > 0 && !named(limit.Name) || !filter.Caps && store.IsCap(limit.Name) {
			continue
		}
		info := store.LimitInfo{Limit: limit, Edited: rows[i].Edited != 0, DeclaredAt: instantOrNil(rows[i].DeclaredAt), Done: s.tally.Of(limit.ID)}
		if err := s.countLimit(ctx, reader.Queries, &info); err != nil {
			return nil, fmt.Errorf("list limits: %w", s.explain(err))
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// countLimit reads what a limit has in use.
func (s *Store) countLimit(ctx context.Context, q *queries.Queries, info *store.LimitInfo) error {
	first, last := admit.GateRange(info.ID)
	used, err := q.LimitUse(ctx, queries.LimitUseParams{First: int64(first), Last: int64(last), Now: s.clock.now()})
	if err != nil {
		return err
	}
	waiting, next, oldest, err := waitingOf(ctx, q, first, last)
	info.InUse, info.Waiting, info.NextAt, info.OldestDue = store.Count{N: used}, waiting, next, oldest
	return err
}

// waitingOf counts the runs that wait for a limit, the gates of which these are, and says
// when the next one may be admitted, and since when the oldest has been due.
func waitingOf(ctx context.Context, q *queries.Queries, first, last admit.GateID) (waiting store.Count, next, oldest *time.Time, err error) {
	counted, err := q.CountWaiting(ctx, queries.CountWaitingParams{First: int64(first), Last: int64(last), Most: waitingMost + 1})
	if err != nil || counted.Waiting == 0 {
		return store.Count{}, nil, nil, err
	}
	waiting = store.Count{N: min(counted.Waiting, waitingMost), AtLeast: counted.Waiting > waitingMost}
	due, err := q.NextTurn(ctx, queries.NextTurnParams{First: int64(first), Last: int64(last)})
	if due > 0 {
		next = instantOrNil(&due)
	}
	return waiting, next, instantOrNil(&counted.Oldest), err
}

// ChangeLimit changes a limit on behalf of an operator.
func (s *Store) ChangeLimit(ctx context.Context, ask store.LimitChange) error {
	if err := rules.CheckLimitCommand(&ask); err != nil {
		return fmt.Errorf("%s limit: %w", ask.Command, err)
	}
	var changed store.LimitID
	err := s.write(ctx, reclaims, func(ctx context.Context, c *change) (err error) {
		changed, err = c.changeLimit(ctx, &ask)
		return err
	})
	if err == nil {
		err = s.announceLimits(ctx, changed)
	}
	if err != nil {
		return fmt.Errorf("%s limit %s: %w", ask.Command, ask.Limit.Name, err)
	}
	return nil
}

// announceLimits says that the gates of limits may have room, part by part: a
// limit may have any number of keys for which runs wait.
func (s *Store) announceLimits(ctx context.Context, limits ...store.LimitID) error {
	for _, limit := range limits {
		for next, more := admit.GateID(0), limit != 0; more; more = next != 0 {
			err := s.write(ctx, reclaims, func(ctx context.Context, c *change) (err error) {
				next, err = c.announceLimit(ctx, limit, next)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// changeLimit returns the limit when other values are in effect from now on.
func (c *change) changeLimit(ctx context.Context, ask *store.LimitChange) (store.LimitID, error) {
	known, err := c.allLimits(ctx)
	if err != nil {
		return 0, err
	}
	name := store.LimitName(ask.Limit.Name)
	row := known.byName[name]
	if row == nil && ask.Command == store.SetLimit {
		insert := newLimit(&ask.Limit)
		insert.Edited = 1
		id, err := c.InsertLimit(ctx, insert)
		if err != nil {
			return 0, err
		}
		c.limits = nil                                                                           // it is read again
		if err := c.capQueue(ctx, &store.Limit{ID: store.LimitID(id), Name: name}); err != nil { //nolint:gosec // at most store.MaxLimitID
			return 0, err
		}
		return 0, c.noteLimit(ctx, ask, name, &ask.Limit)
	}
	if row == nil || store.LimitState(row.State) == store.LimitRemoved && ask.Command != store.SetLimit && ask.Command != store.DeleteLimit {
		return 0, store.ErrNotFound
	}
	limit := limitOf(row)
	gate := admit.GateOf(&limit, ask.Key)
	switch ask.Command {
	case store.ReleasePermit:
		ended, err := c.giveBack(ctx, gate, ask.Owner)
		if err != nil || !ended {
			return 0, err
		}
		return 0, c.noteLimit(ctx, ask, name, &limit)
	case store.LiftPenalty:
		rows, err := c.EndPenalty(ctx, queries.EndPenaltyParams{Gate: int64(gate), Now: c.now})
		if err != nil || rows == 0 {
			return 0, err
		}
		return 0, errors.Join(c.announce(ctx, gate), c.noteLimit(ctx, ask, name, &limit))
	case store.DeleteLimit:
		if err := c.unused(ctx, &limit); err != nil {
			return 0, err
		}
	}
	made, changes, err := rules.ChangedLimit(ask, limit)
	if err == nil {
		err = c.capQueue(ctx, &made)
	}
	if err != nil || !changes {
		return 0, err
	}
	if ask.Command == store.SetLimit {
		row.Edited = 1
	}
	return limit.ID, errors.Join(c.UpdateLimit(ctx, limitRow(&made, row)), c.noteLimit(ctx, ask, name, &made))
}

// unused refuses a limit that runs wait for, or whose places are held.
func (c *change) unused(ctx context.Context, limit *store.Limit) error {
	first, last := admit.GateRange(limit.ID)
	held, err := c.LimitUse(ctx, queries.LimitUseParams{First: int64(first), Last: int64(last), Now: c.now})
	if err != nil {
		return err
	}
	waiting, err := c.CountWaiting(ctx, queries.CountWaitingParams{First: int64(first), Last: int64(last), Most: waitingMost})
	if err == nil && waiting.Waiting+held > 0 {
		err = rules.LimitInUse(limit.Name, waiting.Waiting, held)
	}
	return err
}

func (c *change) noteLimit(ctx context.Context, ask *store.LimitChange, name string, limit *store.Limit) error {
	return c.audit(ctx, rules.KindLimit, name, string(ask.Command), ask.By, rules.LimitDetail(ask, limit))
}

// Gate describes one key of a limit.
func (s *Store) Gate(ctx context.Context, limit, key string) (store.GateInfo, error) {
	info, err := s.describeGate(ctx, limit, key)
	if err != nil {
		return store.GateInfo{}, fmt.Errorf("limit %s: %w", limit, s.explain(err))
	}
	return info, nil
}

func (s *Store) describeGate(ctx context.Context, name, key string) (store.GateInfo, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return store.GateInfo{}, err
	}
	tx, err := s.reads.BeginTx(ctx, nil) // one snapshot
	if err != nil {
		return store.GateInfo{}, err
	}
	defer func() { _ = tx.Rollback() }() // it has only read
	q := reader.WithTx(tx)
	known, err := readLimits(ctx, q)
	if err != nil {
		return store.GateInfo{}, err
	}
	limit := known.find(store.LimitName(name))
	if limit == nil || limit.State == store.LimitRemoved {
		return store.GateInfo{}, store.ErrNotFound
	}
	return gateInfo(ctx, q, limit, key, s.clock.now())
}

// gateInfo describes one key of a limit.
func gateInfo(ctx context.Context, q *queries.Queries, limit *store.Limit, key string, now int64) (store.GateInfo, error) {
	gate := admit.GateOf(limit, key)
	info := store.GateInfo{Limit: *limit, Key: key}
	use, err := q.GateUse(ctx, queries.GateUseParams{Gate: int64(gate), Now: now})
	if err != nil {
		return info, err
	}
	info.InUse = int(use.Used)
	if info.Waiters, info.Waiting, err = waitersOf(ctx, q, limit, gate); err != nil {
		return info, err
	}
	if info.Waiting.N > 0 {
		due, err := q.NextTurn(ctx, queries.NextTurnParams{First: int64(gate), Last: int64(gate)})
		if err != nil {
			return info, err
		}
		if due > 0 {
			info.NextAt = instantOrNil(&due)
		}
	}
	row, err := q.FindGate(ctx, queries.FindGateParams{Gate: int64(gate)})
	if unlessNone(err) != nil {
		return info, err
	}
	if row.NotBefore > now {
		info.NotBefore = instantOrNil(&row.NotBefore)
	}
	info.Permits, err = permitsOf(ctx, q, gate, now)
	return info, err
}

// permitsOf are the permits of a gate by owner, the oldest first.
func permitsOf(ctx context.Context, q *queries.Queries, gate admit.GateID, now int64) (infos []store.PermitInfo, err error) {
	rows, err := q.ListPermits(ctx, queries.ListPermitsParams{Gate: int64(gate), Now: now, Most: shown})
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		info := store.PermitInfo{Owner: uuid.UUID(row.Owner), Places: int(row.Places), Until: store.LimitUntil(row.Until)} //nolint:gosec // a letter
		if row.ExpiresAt > 0 {
			info.ExpiresAt = instantOrNil(&row.ExpiresAt)
		}
		runs, err := q.ListPermitRuns(ctx, queries.ListPermitRunsParams{Gate: int64(gate), Owner: row.Owner, Most: shown})
		if err != nil {
			return nil, err
		}
		for _, run := range runs {
			info.Runs = append(info.Runs, store.RunID(run.RunID))
			if store.State(run.State) == store.Running {
				info.Worker = run.Worker
			}
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// CheckLimits looks for what must not be.
func (s *Store) CheckLimits(ctx context.Context) ([]store.LimitFault, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("check limits: %w", s.explain(err))
	}
	faults, err := reader.limitFaults(ctx, s.clock.now())
	if err != nil {
		return nil, fmt.Errorf("check limits: %w", s.explain(err))
	}
	return faults, nil
}

func (l *lookups) limitFaults(ctx context.Context, now int64) ([]store.LimitFault, error) {
	rows, err := l.limits.QueryContext(ctx, now, rules.FaultsGates, rules.FaultsMost, rules.FaultsLines)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err reports
	faults := []store.LimitFault{}
	for rows.Next() {
		var kind, name string
		var gate, used, most int64
		var id []byte
		var texts *string
		var secret []byte
		if err := rows.Scan(&kind, &gate, &id, &used, &name, &most, &texts, &secret); err != nil {
			return nil, err
		}
		var run store.RunID
		copy(run[:], id)
		var of uuid.UUID
		copy(of[:], secret)
		uses, _ := limitsOf(texts) // what cannot be read names no key
		key := admit.KeyOf(admit.GateID(gate), of, uses)
		faults = append(faults, rules.LimitFault(store.LimitFaultKind(kind), name, key, run, int(used), int(most)))
	}
	return faults, rows.Err()
}
