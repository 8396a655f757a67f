package claiming

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// A capped queue is paused for claims of runs that are not limited, whatever program sends
// them. Its runs are stored as those of any queue; a claim that meets them moves them into
// the line of the cap, and an admission adds the cap to those that wait for another limit.
// So the cap applies to runs that were pending when it was set, to runs that an older program
// enqueues, and to retries.

// adoptRuns moves runs of capped queues that the steps would claim into the lines of the
// caps, and wakes workers for them. Runs that cannot be moved wait; runs of other queues do
// not wait for them.
func (c *Claimer) adoptRuns(ctx context.Context, steps []store.Step) {
	capped := c.capped.Among(steps)
	if len(capped) == 0 {
		return
	}
	lanes, takes := make([]int32, len(capped)), make([]int32, len(capped))
	for i, step := range capped {
		lanes[i], takes[i] = step.Lane, conn.Small(step.Take)
	}
	var moved []store.Due
	err := c.db.Repeat(ctx, func() error {
		b := c.db.Guarded(ctx)
		b.Add(queries.AdoptRuns, lanes, takes).Query(func(rows pgx.Rows) error {
			found, err := pgx.CollectRows(rows, pgx.RowTo[store.LaneID])
			moved = moved[:0]
			for _, lane := range found {
				moved = append(moved, store.Due{Lane: max(lane, -lane), Runs: 1, Limited: true})
			}
			return err
		})
		return c.db.Send(ctx, c.db.Engine, b)
	})
	if err != nil {
		if ctx.Err() == nil {
			c.db.Log.Error("the runs of capped queues could not be put under their caps: they wait", "event", "limit.caps_not_applied", "error", err)
		}
		return
	}
	c.wake.HintDue(moved)
}
