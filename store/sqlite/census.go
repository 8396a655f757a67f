package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// keysCounted bounds the waiting runs that are counted for the keys of a limit.
const keysCounted = 250_000

// keyCensus is one count of the keys of a limit.
type keyCensus struct {
	*queries.Queries

	limit       *store.Limit
	known       *knownLimits
	now         int64
	first, last int64
	counts      admit.KeyCounts
	penalties   map[admit.GateID]int64
	list        store.LimitKeys
}

// LimitKeys lists the keys of a limit for which most runs wait.
func (s *Store) LimitKeys(ctx context.Context, limit string, most int) (store.LimitKeys, error) {
	if err := store.CheckKeysListed(most); err != nil {
		return store.LimitKeys{}, fmt.Errorf("limit keys: %w", err)
	}
	list, err := s.limitKeys(ctx, limit, most)
	if err != nil {
		return store.LimitKeys{}, fmt.Errorf("limit %s: %w", limit, s.explain(err))
	}
	return list, nil
}

func (s *Store) limitKeys(ctx context.Context, name string, most int) (store.LimitKeys, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return store.LimitKeys{}, err
	}
	tx, err := s.reads.BeginTx(ctx, nil) // one snapshot
	if err != nil {
		return store.LimitKeys{}, err
	}
	defer func() { _ = tx.Rollback() }() // it has only read
	q := reader.WithTx(tx)
	known, err := readLimits(ctx, q)
	if err != nil {
		return store.LimitKeys{}, err
	}
	limit := known.find(store.LimitName(name))
	if limit == nil || limit.State == store.LimitRemoved {
		return store.LimitKeys{}, store.ErrNotFound
	}
	first, last := admit.GateRange(limit.ID)
	c := keyCensus{Queries: q, limit: limit, known: known, now: s.clock.now(), first: int64(first), last: int64(last),
		counts: admit.KeyCounts{Limit: limit.ID}, penalties: map[admit.GateID]int64{},
		list: store.LimitKeys{Limit: *limit, Keys: []store.KeyUse{}}}
	if err := c.count(ctx); err != nil {
		return store.LimitKeys{}, err
	}
	return c.list, c.describe(ctx, most)
}

// count counts what waits for each key, and finds those that are in use or penalized.
func (c *keyCensus) count(ctx context.Context) error {
	own, err := c.lines(ctx, c.first, c.last)
	if err != nil {
		return err
	}
	for _, row := range own {
		c.counts.Wait(admit.GateID(row.Gate), admit.GateID(row.Gate), store.Count{N: row.Waiting, AtLeast: c.list.Partial}, instant(row.Oldest))
	}
	if err := c.addSets(ctx); err != nil {
		return err
	}
	beside, err := c.WaitingBeside(ctx, queries.WaitingBesideParams{First: c.first, Last: c.last, Most: linesMost})
	if err != nil {
		return err
	}
	for _, row := range beside {
		c.counts.Wait(admit.GateID(row.Gate), admit.GateID(row.Line), store.Count{N: row.Waiting}, instant(row.Oldest))
	}
	held, err := c.HeldByGate(ctx, queries.HeldByGateParams{First: c.first, Last: c.last, Now: c.now, Most: keysCounted})
	if err != nil {
		return err
	}
	for _, row := range held {
		c.counts.Of(admit.GateID(row.Gate)).InUse = int(row.Places)
	}
	penalized, err := c.PenalizedGates(ctx, queries.PenalizedGatesParams{First: c.first, Last: c.last, Now: c.now, Most: linesMost})
	for _, row := range penalized {
		c.counts.Of(admit.GateID(row.Gate))
		c.penalties[admit.GateID(row.Gate)] = row.NotBefore
	}
	return err
}

// lines counts what waits in the lines of a range of gates, the longest first. Where more
// runs wait than are read, the list of keys is partial.
func (c *keyCensus) lines(ctx context.Context, first, last int64) ([]queries.WaitingByLineRow, error) {
	rows, err := c.WaitingByLine(ctx, queries.WaitingByLineParams{First: first, Last: last, Most: keysCounted})
	total := int64(0)
	for _, row := range rows {
		total += row.Waiting
	}
	c.list.Partial = c.list.Partial || total >= keysCounted
	return rows, err
}

// addSets adds the lines of runs that need several gates, the longest ones, by what the first
// run of each needs.
func (c *keyCensus) addSets(ctx context.Context) error {
	sets, err := c.lines(ctx, -c.last, -c.first)
	if err != nil {
		return err
	}
	if len(sets) > linesMost {
		sets, c.list.Partial = sets[:linesMost], true
	}
	for _, row := range sets {
		text, err := c.FirstWaiting(ctx, queries.FirstWaitingParams{Gate: row.Gate})
		if err != nil {
			return err
		}
		uses, _ := limitsOf(text) // what cannot be read counts for no key
		var gates []admit.GateID
		for _, use := range admit.StoredUses(uses, c.known.find) {
			gates = append(gates, use.Gate)
		}
		c.counts.WaitInSet(admit.GateID(row.Gate), gates, store.Count{N: row.Waiting, AtLeast: c.list.Partial}, instant(row.Oldest))
	}
	return nil
}

// describe lists so many keys, by the names that people know.
func (c *keyCensus) describe(ctx context.Context, most int) error {
	c.list.Known = store.Count{N: int64(c.counts.Len()), AtLeast: c.list.Partial}
	for _, one := range c.counts.Top(most) {
		key, err := c.keyOf(ctx, one)
		if err != nil {
			return err
		}
		var notBefore *time.Time
		if at := c.penalties[one.Gate]; at > 0 {
			notBefore = instantOrNil(&at)
		}
		c.list.Keys = append(c.list.Keys, one.KeyUse(key, notBefore))
	}
	return nil
}

// keyOf is a key as a run that waits for it spells it, or one that has a permit.
func (c *keyCensus) keyOf(ctx context.Context, one *admit.KeyCount) (string, error) {
	if !admit.Keyed(one.Gate) {
		return "", nil
	}
	text, err := c.FirstHolding(ctx, queries.FirstHoldingParams{Gate: int64(one.Gate)})
	if one.Line != 0 {
		text, err = c.FirstWaiting(ctx, queries.FirstWaitingParams{Gate: int64(one.Line)})
	}
	if unlessNone(err) != nil {
		return "", err
	}
	uses, _ := limitsOf(text) // what cannot be read names no key
	return admit.KeyOf(one.Gate, c.limit.Secret, uses), nil
}
