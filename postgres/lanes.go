package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/postgres/internal/queries"
)

// lane is what a lane's number stands for.
type lane struct {
	queue, job string
	priority   int16
}

func compareLanes(a, b lane) int {
	return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.job, b.job), cmp.Compare(a.priority, b.priority))
}

// laneCache remembers the numbers of lanes. They are committed when they get
// here, and never change as long as the schema stands: lanes are never deleted.
// To delete one, its number must be in no run, and runs have no index by lane;
// and no enqueue under way may have seen it, which only a lock on the lane by
// every enqueue would tell. Both cost more than the row of a name that nobody
// uses, so what is bounded is what a process keeps of them.
type laneCache struct {
	mu  sync.RWMutex
	ids map[lane]durable.LaneID
}

// laneCacheMost is far above what a program uses that does not invent queues.
const laneCacheMost = 10_000

// remember keeps the numbers of the lanes in the set, in the place of others
// when there are too many.
func (c *laneCache) remember(set laneSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.ids, set)
	for l := range c.ids {
		if len(c.ids) <= laneCacheMost {
			return
		}
		if _, wanted := set[l]; !wanted {
			delete(c.ids, l)
		}
	}
}

// laneSet is the lanes that some runs need, with their numbers.
type laneSet map[lane]durable.LaneID

// laneIDs finds the numbers of the lanes named in the set, making those that
// are new. It uses a connection of its own, whatever transaction the caller is
// in: a lane made in a transaction that is rolled back would leave its number
// in caches, and one that waits would block everybody who needs it.
func (s *Store) laneIDs(ctx context.Context, set laneSet) error {
	var missing []lane
	s.lanes.mu.RLock()
	for l := range set {
		if id, ok := s.lanes.ids[l]; ok {
			set[l] = id
		} else {
			missing = append(missing, l)
		}
	}
	s.lanes.mu.RUnlock()
	if len(missing) == 0 {
		return nil
	}
	slices.SortFunc(missing, compareLanes)
	names := laneColumns(missing)
	rows, err := s.queries(s.general).Lanes(ctx, queries.LanesParams(names))
	if err == nil && len(rows) < len(missing) {
		if err = s.createLanes(ctx, names); err == nil {
			rows, err = s.queries(s.general).Lanes(ctx, queries.LanesParams(names))
		}
	}
	if err != nil {
		return err
	}
	if len(rows) < len(missing) {
		return fmt.Errorf("%d lanes could not be made", len(missing)-len(rows))
	}
	for _, row := range rows {
		set[lane{row.Queue, row.Job, row.Priority}] = row.ID
	}
	s.lanes.remember(set)
	return nil
}

// createLanes makes lanes, paused as their queues are.
func (s *Store) createLanes(ctx context.Context, names queries.CreateLanesParams) error {
	return s.repeat(ctx, func() error {
		b := s.guarded(ctx)
		b.add(queries.TouchQueues, names.Queues)
		b.add(queries.ShareQueues, names.Queues)
		b.add(queries.CreateLanes, names.Queues, names.Jobs, names.Priorities)
		return s.send(ctx, s.general, b)
	})
}

// forgetLanes empties the cache: the numbers in it stand for other lanes now.
func (s *Store) forgetLanes() {
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	clear(s.lanes.ids)
}

func laneColumns(lanes []lane) queries.CreateLanesParams {
	var c queries.CreateLanesParams
	for _, l := range lanes {
		c.Queues = append(c.Queues, l.queue)
		c.Jobs = append(c.Jobs, l.job)
		c.Priorities = append(c.Priorities, l.priority)
	}
	return c
}

func laneOf(run *durable.NewRun) lane {
	return lane{run.Queue, run.Job, int16(run.Priority)} //nolint:gosec // checked: -4 to 4
}
