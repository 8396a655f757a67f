package claiming

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Heads returns the lanes a worker serves with their first waiting runs.
func (c *Claimer) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	if err := c.schema.Usable(ctx); err != nil {
		return nil, c.db.Fail("heads", err)
	}
	var heads []store.Head
	var capped []bool
	limited := false
	b := c.db.Guarded(ctx)
	b.Add(queries.Heads, marksOf(serves.From), conn.OrEmpty(serves.Queues), conn.OrEmpty(serves.Jobs)).Query(func(rows pgx.Rows) error {
		heads, capped = heads[:0], capped[:0]
		for rows.Next() {
			var h store.Head
			var isCapped, turns bool
			if err := scanHead(rows, &h, &isCapped, &turns); err != nil {
				return err
			}
			heads, capped, limited = append(heads, h), append(capped, isCapped), limited || turns
		}
		return rows.Err()
	})
	if err := c.db.SendInBackground(ctx, b); err != nil {
		return nil, c.db.Fail("heads", err)
	}
	c.numbers.LearnLanes(heads)
	c.wake.Leave(serves, heads)
	c.capped.Learn(heads, capped)
	if limited {
		heads = append(heads, c.turnHeads(ctx, &serves)...)
	}
	return heads, nil
}

// turnHeads returns the heads of the lines of turns. If they cannot be read, limited runs
// wait, and the others do not wait for them.
func (c *Claimer) turnHeads(ctx context.Context, serves *store.Serves) (heads []store.Head) {
	b := c.db.Guarded(ctx)
	b.Add(queries.TurnHeads, conn.OrEmpty(serves.Queues), conn.OrEmpty(serves.Jobs)).Query(func(rows pgx.Rows) error {
		heads = heads[:0]
		for rows.Next() {
			var h store.Head
			if err := scanHead(rows, &h, &h.Line); err != nil {
				return err
			}
			heads = append(heads, h)
		}
		return rows.Err()
	})
	if err := c.db.Send(ctx, c.db.Engine, b); err != nil {
		if ctx.Err() == nil {
			c.db.Log.Error("the turns of limited runs could not be read: they wait", "event", "limit.turns_unreadable", "error", err)
		}
		return nil
	}
	return heads
}

// scanHead reads a head, and the columns that come after it.
func scanHead(rows pgx.Rows, h *store.Head, more ...any) error {
	var due *time.Time
	var now time.Time
	err := rows.Scan(append([]any{&h.Lane, &h.Queue, &h.Job, &h.Priority, &due, &now}, more...)...)
	if err == nil && due != nil {
		h.Waiting, h.DueAt, h.In = true, *due, due.Sub(now)
	}
	return err
}

// marksOf writes the lower bounds of lanes as JSON.
func marksOf(from map[store.LaneID]time.Time) string {
	marks := append(make([]byte, 0, 2+48*len(from)), '{')
	for lane, at := range from {
		if len(marks) > 1 {
			marks = append(marks, ',')
		}
		marks = strconv.AppendInt(append(marks, '"'), int64(lane), 10)
		marks = at.UTC().AppendFormat(append(marks, '"', ':', '"'), "2006-01-02T15:04:05.999999Z07:00")
		marks = append(marks, '"')
	}
	return string(append(marks, '}'))
}
