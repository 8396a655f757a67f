package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// knownLimits are all limits, as one transaction has read them.
type knownLimits struct {
	byName map[string]*queries.Limit
	byID   map[store.LimitID]*queries.Limit
	made   map[store.LimitID]*store.Limit
}

func readLimits(ctx context.Context, q *queries.Queries) (*knownLimits, error) {
	rows, err := q.ListLimits(ctx)
	if err != nil {
		return nil, err
	}
	known := &knownLimits{byName: make(map[string]*queries.Limit, len(rows)), byID: make(map[store.LimitID]*queries.Limit, len(rows)),
		made: make(map[store.LimitID]*store.Limit, len(rows))}
	for i := range rows {
		limit := limitOf(&rows[i])
		known.byName[limit.Name], known.byID[limit.ID], known.made[limit.ID] = &rows[i], &rows[i], &limit
	}
	return known, nil
}

// find is a limit by the name it is stored under, or nil.
func (k *knownLimits) find(name string) *store.Limit {
	if row := k.byName[name]; row != nil {
		return k.made[store.LimitID(row.ID)] //nolint:gosec // at most store.MaxLimitID
	}
	return nil
}

// offered is a limit that runs may be enqueued with, or nil.
func (k *knownLimits) offered(name string) *store.Limit {
	limit := k.find(name)
	if limit == nil || limit.State == store.LimitRemoved && k.byName[name].DeclaredAt == nil {
		return nil
	}
	return limit
}

func limitOf(row *queries.Limit) store.Limit {
	limit := store.Limit{
		ID: store.LimitID(row.ID), Name: row.Name, Kind: store.LimitKind(row.Kind), Max: int(row.Most), Period: duration(row.Period), //nolint:gosec // stored by this package
		Burst: int(row.Burst), Buckets: int(row.Buckets), Least: int(row.LeastShare), Most: int(row.MostShare),
		WhenFull: store.LimitAction(row.Action), RetryAfter: duration(row.RetryAfter), State: store.LimitState(row.State), //nolint:gosec // likewise
	}
	copy(limit.Secret[:], row.Secret)
	return limit.AsRead()
}

// allLimits reads the limits once in a transaction.
func (c *change) allLimits(ctx context.Context) (*knownLimits, error) {
	var err error
	if c.limits == nil {
		c.limits, err = readLimits(ctx, c.Queries)
	}
	return c.limits, err
}

// checkLimits refuses runs with limits that are not known, or that may not be
// used so. It is asked before the runs share a transaction with others.
func (s *Store) checkLimits(ctx context.Context, runs []store.NewRun) error {
	if !rules.AnyLimited(runs) {
		return nil
	}
	reader, err := s.read(ctx)
	if err != nil {
		return s.explain(err)
	}
	known, err := readLimits(ctx, reader.Queries)
	if err != nil {
		return s.explain(err)
	}
	return known.check(runs)
}

// checkLimits is the store's within a transaction.
func (c *change) checkLimits(ctx context.Context, runs ...store.NewRun) error {
	if !rules.AnyLimited(runs) {
		return nil
	}
	known, err := c.allLimits(ctx)
	if err != nil {
		return err
	}
	return known.check(runs)
}

func (k *knownLimits) check(runs []store.NewRun) error {
	for i := range runs {
		if len(runs[i].Limits) == 0 {
			continue
		}
		if _, err := admit.UsesOf(runs[i].Limits, k.offered); err != nil {
			return err
		}
	}
	return nil
}

// limitsText is how the limits of a run are stored; none are null.
func limitsText(limits []store.LimitUse) *string {
	if len(limits) == 0 {
		return nil
	}
	text, _ := json.Marshal(store.LimitTexts(limits)) // texts always can be
	stored := string(text)
	return &stored
}

// limitsOf reads the stored limits of a run.
func limitsOf(text *string) ([]store.LimitUse, error) {
	texts, err := limitTextsOf(text)
	if err != nil {
		return nil, err
	}
	return store.ParseLimitTexts(texts)
}

func limitTextsOf(text *string) (texts []string, err error) {
	if text != nil {
		err = json.Unmarshal([]byte(*text), &texts)
	}
	return texts, err
}

// usesOf are the gates of a run, with the permits that it, or its named owner, has.
func (c *change) usesOf(ctx context.Context, id []byte, text *string) ([]admit.Use, error) {
	known, err := c.allLimits(ctx)
	if err != nil {
		return nil, err
	}
	limits, err := limitsOf(text)
	if err != nil {
		return nil, fmt.Errorf("limits of run %s: %w", uuid.UUID(id), err)
	}
	uses := admit.StoredUses(limits, known.find)
	for i := range uses {
		use := &uses[i]
		ask := queries.HasPermitParams{Gate: int64(use.Gate), Owner: id, RunID: id, Now: c.now}
		switch {
		case use.Mode == store.LimitAcquire:
			ask.Owner, ask.RunID = use.Owner[:], []byte{}
		case use.Until == store.UntilSettled:
			continue
		}
		has, err := c.HasPermit(ctx, ask)
		if err != nil {
			return nil, err
		}
		use.Has = has > 0
	}
	return uses, nil
}

// intoLine gives a run that has become pending its place in line. Every way to a
// pending run leads here.
func (c *change) intoLine(ctx context.Context, lane, due int64, id []byte, limits *string) error {
	if limits == nil {
		return c.InsertReady(ctx, queries.InsertReadyParams{Lane: lane, DueAt: due, RunID: id})
	}
	uses, err := c.usesOf(ctx, id, limits)
	if err != nil {
		return err
	}
	gate := int64(admit.LineOf(uses))
	if err := c.InsertWaiting(ctx, queries.InsertWaitingParams{Gate: gate, Lane: lane, DueAt: due, RunID: id}); err != nil {
		return err
	}
	seen := map[store.LimitID]bool{}
	for i := range uses {
		limit := admit.LimitOf(uses[i].Gate)
		if seen[limit] {
			continue
		}
		seen[limit] = true
		if err := c.InsertLimitLane(ctx, queries.InsertLimitLaneParams{LimitID: int64(limit), Lane: lane}); err != nil {
			return err
		}
	}
	// One that is due later needs a turn of its own: an earlier one is taken before.
	until := int64(math.MinInt64)
	if due <= c.now {
		due, until = c.now, c.now
	}
	_, err = c.InsertTurn(ctx, queries.InsertTurnParams{Line: lane, DueAt: due, Gate: gate, Until: until})
	return err
}

// outOfLine takes a pending run out of its line.
func (c *change) outOfLine(ctx context.Context, lane, due int64, id []byte, limits *string) error {
	if limits == nil {
		return c.DeleteReady(ctx, queries.DeleteReadyParams{Lane: lane, DueAt: due, RunID: id})
	}
	uses, err := c.usesOf(ctx, id, limits)
	if err != nil {
		return err
	}
	for _, gate := range gatesOf(uses) {
		rows, err := c.DeleteWaiting(ctx, queries.DeleteWaitingParams{Gate: int64(gate), Lane: lane, DueAt: due, RunID: id})
		if err != nil {
			return err
		}
		if rows > 0 {
			return c.announceLine(ctx, gate, lane) // it may have been in the way of others
		}
	}
	return nil
}

// gatesOf are the gates in whose lines a run may wait.
func gatesOf(uses []admit.Use) []admit.GateID {
	gates := []admit.GateID{admit.LineOf(uses)}
	if set := admit.SetOf(waitingUses(uses)); set != 0 && set != gates[0] {
		gates = append(gates, set)
	}
	for i := range uses {
		if uses[i].Gate != gates[0] {
			gates = append(gates, uses[i].Gate)
		}
	}
	if gates[0] != admit.AllPermits {
		gates = append(gates, admit.AllPermits)
	}
	return gates
}

// waitingUses are uses as they are while no limit has another action than to let runs
// wait: an operator may have changed that since the run got its place in line.
func waitingUses(uses []admit.Use) []admit.Use {
	uses = slices.Clone(uses)
	for i := range uses {
		uses[i].Acts = false
	}
	return uses
}

// release ends the permits of a limited run that end with the state it has now.
func (c *change) release(ctx context.Context, id []byte, state store.State, limits *string) error {
	ask := queries.ReleasePermitsParams{RunID: id}
	if admit.Ends(store.UntilFinished, state) {
		ask.Finished = 1
	}
	if admit.Ends(store.UntilFinishedOrRevived, state) {
		ask.Gone = 1
	}
	if err := c.releaseAll(ctx, ask); err != nil {
		return err
	}
	if state != store.Succeeded || limits == nil {
		return nil
	}
	uses, err := c.usesOf(ctx, id, limits)
	if err != nil {
		return err
	}
	for i := range uses {
		if !admit.GivesBack(uses[i].Mode, state) {
			continue
		}
		if _, err := c.giveBack(ctx, uses[i].Gate, uses[i].Owner); err != nil {
			return err
		}
	}
	return nil
}

// releaseDeleted ends all permits of a run that is deleted, or begins again.
func (c *change) releaseDeleted(ctx context.Context, id []byte, limits *string) error {
	if limits == nil {
		return nil
	}
	return c.releaseAll(ctx, queries.ReleasePermitsParams{RunID: id, Finished: 1, Gone: 1})
}

func (c *change) releaseAll(ctx context.Context, ask queries.ReleasePermitsParams) error {
	gates, err := c.ReleasePermits(ctx, ask)
	if err != nil {
		return err
	}
	for _, gate := range gates {
		if err := c.announce(ctx, admit.GateID(gate)); err != nil {
			return err
		}
	}
	return nil
}

// giveBack ends the permit of a named owner and reports whether there was one.
func (c *change) giveBack(ctx context.Context, gate admit.GateID, owner uuid.UUID) (bool, error) {
	rows, err := c.DeletePermitsOf(ctx, queries.DeletePermitsOfParams{Gate: int64(gate), Owner: owner[:]})
	if err != nil || rows == 0 {
		return false, err
	}
	return true, c.announce(ctx, gate)
}

// announce says that a gate may have room, if a run waits for that.
func (c *change) announce(ctx context.Context, gate admit.GateID) error {
	if gate == admit.AllPermits {
		return nil
	}
	rows, err := c.Announce(ctx, queries.AnnounceParams{Line: int64(admit.LimitLine(admit.LimitOf(gate))), Now: c.now, Gate: int64(gate)})
	c.freed = c.freed || rows > 0
	return err
}

// announcedPerStep bounds the gates that one transaction announces.
const announcedPerStep = 1000

// announceLimit says that the gates of a limit may have room, from one of them on:
// a part of them. It returns where the next part begins; zero: there is none.
func (c *change) announceLimit(ctx context.Context, limit store.LimitID, from admit.GateID) (next admit.GateID, err error) {
	first, last := admit.GateRange(limit)
	from = max(from, first)
	for range announcedPerStep {
		gate, err := c.NextWaitingGate(ctx, queries.NextWaitingGateParams{First: int64(from), Last: int64(last)})
		if err != nil || gate == 0 {
			return 0, err
		}
		if err := c.announce(ctx, admit.GateID(gate)); err != nil {
			return 0, err
		}
		from = admit.GateID(gate) + 1
	}
	return from, nil
}

// refund gives back the starts of a run that was handed back before its handler
// began.
func (c *change) refund(ctx context.Context, id []byte) error {
	row, err := c.FindLimitsOf(ctx, queries.FindLimitsOfParams{ID: id})
	if err != nil || row.Limits == nil || row.StartedAt == nil {
		return unlessNone(err)
	}
	uses, err := c.usesOf(ctx, id, row.Limits)
	if err != nil {
		return err
	}
	for i := range uses {
		if limit := c.limits.made[admit.LimitOf(uses[i].Gate)]; !limit.Rate() {
			continue
		}
		err := errors.Join(
			c.InsertRefund(ctx, queries.InsertRefundParams{Gate: int64(uses[i].Gate), Weight: int64(uses[i].Weight), ChargedAt: *row.StartedAt}),
			c.announce(ctx, uses[i].Gate),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// mend gives a pending run its place in line, if it has lost it, and reports
// whether it had.
func (c *change) mend(ctx context.Context, lane, due int64, id []byte, limits *string) (int64, error) {
	if limits == nil {
		return c.MendReady(ctx, queries.MendReadyParams{Lane: lane, DueAt: due, RunID: id})
	}
	uses, err := c.usesOf(ctx, id, limits)
	if err != nil {
		return 0, err
	}
	for _, gate := range gatesOf(uses) {
		rows, err := c.HasWaiting(ctx, queries.HasWaitingParams{Gate: int64(gate), Lane: lane, DueAt: due, RunID: id})
		if err != nil || rows > 0 {
			return 0, err
		}
	}
	return 1, c.intoLine(ctx, lane, due, id, limits)
}

// refundOf is refund for a run that the claim still has.
func (c *change) refundOf(ctx context.Context, claim lease.ClaimID, id []byte) error {
	if _, err := c.FindClaimed(ctx, queries.FindClaimedParams{ID: id, ClaimID: claim[:]}); err != nil {
		return unlessNone(err)
	}
	return c.refund(ctx, id)
}
