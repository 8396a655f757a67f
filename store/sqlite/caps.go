package sqlite

import (
	"context"
	"slices"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// A capped queue is paused for claims of runs that are not limited, whatever program sends
// them. A claim that meets its runs moves them into the line of the cap, and an admission
// adds the cap to those that wait for another limit.

// adoptRuns moves runs of capped queues that the steps would claim into the lines of the
// caps, and wakes workers for them. Where they cannot be moved, they wait, and the runs of
// other queues do not wait for them.
func (s *Store) adoptRuns(ctx context.Context, steps []store.Step) {
	if len(steps) == 0 {
		return
	}
	adopted := false
	err := s.write(ctx, claims, func(ctx context.Context, c *change) (err error) {
		adopted, err = c.adoptSteps(ctx, steps)
		return err
	})
	switch {
	case err != nil && ctx.Err() == nil:
		s.logger.Error("the runs of capped queues could not be put under their caps: they wait", "event", "limit.caps_not_applied", "error", err)
	case adopted:
		s.hint()
	}
}

func (c *change) adoptSteps(ctx context.Context, steps []store.Step) (adopted bool, err error) {
	for _, step := range steps {
		rows, err := c.ListAdopted(ctx, queries.ListAdoptedParams{Lane: int64(step.Lane), Now: c.now, Most: int64(step.Take)})
		if err != nil {
			return false, err
		}
		for _, row := range rows {
			if err := c.adoptRun(ctx, step.Lane, &row); err != nil {
				return false, err
			}
		}
		adopted = adopted || len(rows) > 0
	}
	return adopted, nil
}

func (c *change) adoptRun(ctx context.Context, lane store.LaneID, row *queries.ListAdoptedRow) error {
	err := c.DeleteReady(ctx, queries.DeleteReadyParams{Lane: int64(lane), DueAt: row.DueAt, RunID: row.RunID})
	if err != nil {
		return err
	}
	if store.State(row.State) != store.Pending { // only a change by hand can leave that
		c.undealt++
		return nil
	}
	limits := limitsText([]store.LimitUse{{Limit: store.QueueCap(row.Name)}})
	if err := c.SetLimitsOf(ctx, queries.SetLimitsOfParams{Limits: limits, ID: row.RunID}); err != nil {
		return err
	}
	return c.intoLine(ctx, int64(lane), row.DueAt, row.RunID, limits)
}

// adopt adds the cap of its queue to a waiter that does not have it.
func (a *admitting) adopt(ctx context.Context, lane store.LaneID, name string, row *queries.ListWaitingRow) error {
	limits, err := limitsOf(row.Limits)
	if err != nil || slices.ContainsFunc(limits, func(use store.LimitUse) bool { return use.Limit == name }) {
		return err
	}
	row.Limits = limitsText(append(limits, store.LimitUse{Limit: name}))
	if err := a.SetLimitsOf(ctx, queries.SetLimitsOfParams{Limits: row.Limits, ID: row.RunID}); err != nil {
		return err
	}
	limit := a.known.find(name)
	if limit == nil {
		return nil
	}
	return a.InsertLimitLane(ctx, queries.InsertLimitLaneParams{LimitID: int64(limit.ID), Lane: int64(lane)})
}

// capQueue makes a queue capped as its cap says, after it was changed. Other limits cap none.
func (c *change) capQueue(ctx context.Context, limit *store.Limit) error {
	queue, caps := store.CappedQueue(limit.Name)
	if !caps {
		return nil
	}
	ask := queries.CapQueueParams{Name: queue}
	if limit.State == store.LimitActive || limit.State == store.LimitDraining {
		gate := int64(admit.Unkeyed(limit.ID))
		ask.Gate = &gate
	}
	if err := c.CapQueue(ctx, ask); err != nil {
		return err
	}
	return c.InsertCapLanes(ctx, queries.InsertCapLanesParams{LimitID: int64(limit.ID), Queue: queue})
}
