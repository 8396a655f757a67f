package reading

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/numbers"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Bounds of what is read about the keys of a limit.
const (
	// keysCounted is how many waiting runs are counted one by one. Where more wait, the
	// numbers come from a sample.
	keysCounted = 250_000
	// keysRead bounds the lines and the gates of a limit that are looked at, the longest first.
	keysRead = store.MaxKeysListed
	// besideMost bounds the runs that are counted of each line of another limit.
	besideMost = 1000
)

// keyCensus is one count of the keys of a limit.
type keyCensus struct {
	reader      *Reader
	counts      admit.KeyCounts
	first, last int64
	list        store.LimitKeys
	lines       int64 // that were found, the sets of gates included
	more        bool  // some were left out
}

// LimitKeys lists the keys of a limit for which most runs wait.
func (r *Reader) LimitKeys(ctx context.Context, limit string, most int) (store.LimitKeys, error) {
	if err := store.CheckKeysListed(most); err != nil {
		return store.LimitKeys{}, fmt.Errorf("limit keys: %w", err)
	}
	if err := r.schema.Usable(ctx); err != nil {
		return store.LimitKeys{}, r.db.Fail("limit keys", err)
	}
	set := numbers.LimitSet{store.LimitName(limit): nil}
	if err := r.numbers.FindLimits(ctx, r.db.Reading, set, false); err != nil {
		return store.LimitKeys{}, r.db.Fail("limit keys", err)
	}
	known := set[store.LimitName(limit)]
	if known == nil || known.State == store.LimitRemoved {
		return store.LimitKeys{}, fmt.Errorf("limit %s: %w", limit, store.ErrNotFound)
	}
	c := keyCensus{reader: r, counts: admit.KeyCounts{Limit: known.ID}, list: store.LimitKeys{Limit: known.Limit, Keys: []store.KeyUse{}}}
	first, last := admit.GateRange(known.ID)
	c.first, c.last = int64(first), int64(last)
	if err := c.count(ctx); err != nil {
		return store.LimitKeys{}, r.db.Fail("limit keys", err)
	}
	if err := c.describe(ctx, most); err != nil {
		return store.LimitKeys{}, r.db.Fail("limit keys", err)
	}
	return c.list, nil
}

// count counts what waits for each key, and finds those that are in use or penalized.
func (c *keyCensus) count(ctx context.Context) error {
	var own, sets []queries.WaitingByLineRow
	var beside []queries.WaitingBesideRow
	var held []queries.HeldByGateRow
	var penalized []int64
	err := c.reader.inspect(ctx, func(b *conn.Batch) {
		b.Add(queries.WaitingByLine, c.first, c.last, int32(keysCounted), int32(keysRead)).Query(conn.Collect(&own))
		b.Add(queries.WaitingByLine, -c.last, -c.first, int32(keysCounted), int32(keysRead)).Query(conn.Collect(&sets))
		b.Add(queries.WaitingBeside, c.first, c.last, int32(keysRead), int32(besideMost)).Query(conn.Collect(&beside))
		b.Add(queries.HeldByGate, c.first, c.last, int32(CountMost), int32(keysRead)).Query(conn.Collect(&held))
		b.Add(queries.PenalizedGates, c.first, c.last, int32(keysRead)).Query(func(rows pgx.Rows) (err error) {
			penalized, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
	})
	if err != nil {
		return err
	}
	for _, rows := range []*[]queries.WaitingByLineRow{&own, &sets} {
		if err := c.sampled(ctx, rows); err != nil {
			return err
		}
	}
	for _, row := range own {
		c.counts.Wait(admit.GateID(row.Gate), admit.GateID(row.Gate), c.waiting(&row), row.Oldest)
	}
	if err := c.addSets(ctx, sets); err != nil {
		return err
	}
	for _, row := range beside {
		c.counts.Wait(admit.GateID(row.Gate), admit.GateID(row.Line), store.Count{N: row.Waiting, AtLeast: row.Waiting >= besideMost}, row.Oldest)
	}
	for _, row := range held {
		c.counts.Of(admit.GateID(row.Gate)).InUse = int(row.Places)
	}
	for _, gate := range penalized {
		c.counts.Of(admit.GateID(gate))
	}
	c.more = c.more || len(beside) == keysRead || len(held) == keysRead || len(penalized) == keysRead
	return nil
}

// sampled replaces counts that did not reach the end of their range by those of a sample of
// the table's pages: the count has seen only the gates of the lowest numbers.
func (c *keyCensus) sampled(ctx context.Context, rows *[]queries.WaitingByLineRow) error {
	found := *rows
	if len(found) == 0 {
		return nil
	}
	c.lines = max(c.lines, found[0].Lines)
	c.more = c.more || found[0].Lines > int64(len(found))
	if found[0].Total < keysCounted {
		return nil
	}
	c.more = true
	q := c.reader.db.Queries(c.reader.db.Reading)
	size, err := q.EstimateRows(ctx, queries.EstimateRowsParams{SchemaName: c.reader.db.Names.Schema, TableName: "waiting"})
	if err != nil {
		return err
	}
	first, last := c.first, c.last
	if found[0].Gate < 0 {
		first, last = -last, -first
	}
	percent := percentOf(size.Pages)
	sample, err := q.SampleByLine(ctx, queries.SampleByLineParams{Percent: percent, First: first, Last: last, Listed: keysRead})
	if err != nil {
		return err
	}
	*rows = nil
	for _, row := range sample {
		*rows = append(*rows, queries.WaitingByLineRow{Gate: row.Gate, Waiting: int64(float64(row.Waiting) * 100 / float64(percent)), Oldest: row.Oldest, Total: keysCounted})
	}
	return nil
}

// waiting is the number of runs in a line: about, where it comes from a sample.
func (c *keyCensus) waiting(row *queries.WaitingByLineRow) store.Count {
	return store.Count{N: row.Waiting, Estimated: row.Total >= keysCounted}
}

// addSets adds the lines of runs that need several gates, by what the first run of each needs.
func (c *keyCensus) addSets(ctx context.Context, sets []queries.WaitingByLineRow) error {
	if len(sets) == 0 {
		return nil
	}
	lines := make([]int64, len(sets))
	for i := range sets {
		lines[i] = sets[i].Gate
	}
	var rows []queries.GatesOfLinesRow
	err := c.reader.inspect(ctx, func(b *conn.Batch) { b.Add(queries.GatesOfLines, lines).Query(conn.Collect(&rows)) })
	if err != nil {
		return err
	}
	gates := map[int64][]admit.GateID{}
	for _, row := range rows {
		for _, gate := range row.Gates {
			gates[row.Line] = append(gates[row.Line], admit.GateID(gate))
		}
	}
	for _, row := range sets {
		c.counts.WaitInSet(admit.GateID(row.Gate), gates[row.Gate], c.waiting(&row), row.Oldest)
	}
	return nil
}

// describe lists so many keys, by the names that people know.
func (c *keyCensus) describe(ctx context.Context, most int) error {
	c.list.Known = store.Count{N: max(int64(c.counts.Len()), c.lines), AtLeast: c.more}
	top := c.counts.Top(most)
	gates, lines := make([]int64, len(top)), make([]int64, len(top))
	for i, one := range top {
		gates[i], lines[i] = int64(one.Gate), int64(one.Line)
	}
	var rows []queries.DescribeGatesRow
	err := c.reader.inspect(ctx, func(b *conn.Batch) { b.Add(queries.DescribeGates, gates, lines).Query(conn.Collect(&rows)) })
	if err != nil {
		return err
	}
	known := make(map[int64]*queries.DescribeGatesRow, len(rows))
	for i := range rows {
		known[rows[i].Gate] = &rows[i]
	}
	for _, one := range top {
		row := known[int64(one.Gate)]
		if row == nil {
			continue
		}
		one.InUse = int(row.Used)
		if row.Key == "" {
			row.Key = admit.KeyOf(one.Gate, c.list.Limit.Secret, numbers.UsesOf(row.Limits))
		}
		var notBefore *time.Time
		if row.Penalized {
			notBefore = conn.TimesUTC(row.NotBefore)
		}
		c.list.Keys = append(c.list.Keys, one.KeyUse(row.Key, notBefore))
	}
	return nil
}
