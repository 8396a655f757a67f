package numbers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// Lane is what a lane's number means.
type Lane struct {
	Queue, Job string
	Priority   int16
}

func compareLanes(a, b Lane) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Priority, b.Priority))
}

// laneCache remembers the numbers of lanes. Only committed ones get here, and they never
// change as long as the schema exists: lanes are never deleted. To delete a lane, its number
// must be in no run, but runs have no index by lane; and no enqueue in progress may have read
// it, which would take a lock on the lane by every enqueue. Both cost more than the row of a
// name that is not used. So the table is not bounded, but this cache is.
type laneCache struct {
	mu    sync.RWMutex
	ids   map[Lane]store.LaneID
	names map[store.LaneID]uint64 // see wake.NamesOf; of lanes that workers of this process serve
}

// learn remembers the lanes of heads.
func (c *laneCache) learn(heads []store.Head) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil || len(c.names) > laneCacheMost {
		c.names = make(map[store.LaneID]uint64, len(heads))
	}
	for i := range heads {
		if h := &heads[i]; h.Lane > 0 && c.names[h.Lane] == 0 {
			c.names[h.Lane] = wake.NamesOf(h.Queue, h.Job)
		}
	}
}

// name returns the names of a lane; zero: they are not known.
func (c *laneCache) name(id store.LaneID) uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.names[id]
}

// LearnLanes remembers the names of the lanes of heads.
func (n *Numbers) LearnLanes(heads []store.Head) { n.lanes.learn(heads) }

// NamesOf returns the hash of a lane's names; zero: they are not known.
func (n *Numbers) NamesOf(lane store.LaneID) uint64 { return n.lanes.name(lane) }

// laneCacheMost is far above what a program needs, unless it makes up names of queues.
const laneCacheMost = 10_000

// remember keeps the numbers of the lanes in the set, in the place of others
// when there are too many.
func (c *laneCache) remember(set LaneSet) {
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

// LaneSet is the lanes that some runs need, with their numbers.
type LaneSet map[Lane]store.LaneID

// LaneIDs finds the numbers of the lanes named in the set, making those that
// are new. It uses a connection of its own, whatever transaction the caller is
// in: a lane made in a transaction that is rolled back would leave its number
// in caches, and one that waits would block every caller that needs it. A
// caller that holds a connection of this store must not call it: if every connection
// is held by a call that waits for a second one, all of them wait until their
// contexts end. Such calls find their lanes earlier, or with LanesIn.
func (n *Numbers) LaneIDs(ctx context.Context, set LaneSet) error {
	missing, err := n.findLanes(ctx, n.db.Aloof(), set)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := n.createLanes(ctx, laneColumns(missing)); err != nil {
		return err
	}
	if missing, err = n.findLanes(ctx, n.db.Aloof(), set); err == nil && len(missing) > 0 {
		err = fmt.Errorf("%d lanes could not be made", len(missing))
	}
	return err
}

// LanesIn is LaneIDs for a transaction of this store: it asks on the
// transaction's own connection. Lanes that are new end the transaction with
// newLanesError, and WithLanes begins it again once they are made.
func (n *Numbers) LanesIn(ctx context.Context, tx pgx.Tx, set LaneSet) error {
	missing, err := n.findLanes(ctx, tx, set)
	if err == nil && len(missing) > 0 {
		err = &newLanesError{lanes: missing}
	}
	return err
}

// newLanesError is the error of a transaction that needs lanes that are not there.
type newLanesError struct {
	lanes  []Lane
	limits []LimitLane
}

// Error says how many are missing.
func (n *newLanesError) Error() string {
	return fmt.Sprintf("%d lanes are new", len(n.lanes)+len(n.limits))
}

// RefusedLanes are lanes that the database refuses to make, and why.
type RefusedLanes map[Lane]error

// WithLanes runs do in a transaction and repeats it as conn.Repeat does. do finds its lanes with
// LanesIn. WithLanes notes lanes that cannot be created in refused, for the repetition; if refused
// is nil, they are the error.
func (n *Numbers) WithLanes(ctx context.Context, pool *pgxpool.Pool, refused RefusedLanes, do func(pgx.Tx) error) error {
	for try := 1; ; try++ {
		err := n.db.Repeat(ctx, func() error {
			if pool == n.db.Engine {
				n.db.Sparing.Enter(ctx, conn.HotWait)
				defer n.db.Sparing.Leave()
			}
			return conn.InTx(ctx, pool, do)
		})
		missing := (*newLanesError)(nil)
		if try == 10 || !errors.As(err, &missing) {
			return err
		}
		if len(missing.limits) > 0 {
			if err = n.createLimitLanes(ctx, missing.limits); err != nil {
				return err
			}
			continue
		}
		err = n.createLanes(ctx, laneColumns(missing.lanes))
		if conn.RefusesRows(err) && refused != nil {
			err = n.createEach(ctx, missing.lanes, refused)
		}
		if err != nil {
			return err
		}
	}
}

func (n *Numbers) createEach(ctx context.Context, lanes []Lane, refused RefusedLanes) error {
	for _, l := range lanes {
		err := n.createLanes(ctx, laneColumns([]Lane{l}))
		if conn.RefusesRows(err) {
			refused[l] = err
		} else if err != nil {
			return err
		}
	}
	return nil
}

// findLanes fills in the numbers that the cache or the database has, and
// returns the lanes that there are not.
func (n *Numbers) findLanes(ctx context.Context, in queries.DBTX, set LaneSet) (missing []Lane, err error) {
	n.lanes.mu.RLock()
	for l := range set {
		if id, ok := n.lanes.ids[l]; ok {
			set[l] = id
		} else {
			missing = append(missing, l)
		}
	}
	n.lanes.mu.RUnlock()
	if len(missing) == 0 {
		return nil, nil
	}
	slices.SortFunc(missing, compareLanes)
	rows, err := n.db.Queries(in).Lanes(ctx, queries.LanesParams(laneColumns(missing)))
	if err != nil {
		return nil, err
	}
	found := make(LaneSet, len(rows))
	for _, row := range rows {
		l := Lane{row.Queue, row.Job, row.Priority}
		set[l], found[l] = row.ID, row.ID
	}
	n.lanes.remember(found)
	return slices.DeleteFunc(missing, func(l Lane) bool { _, ok := found[l]; return ok }), nil
}

// createLanes makes lanes, paused as their queues are.
func (n *Numbers) createLanes(ctx context.Context, names queries.CreateLanesParams) error {
	return n.db.Repeat(ctx, func() error {
		b := n.db.Guarded(ctx)
		b.Add(queries.TouchQueues, names.Queues)
		b.Add(queries.ShareQueues, names.Queues)
		b.Add(queries.CreateLanes, names.Queues, names.Jobs, names.Priorities)
		return n.db.Send(ctx, n.db.Aloof(), b)
	})
}

// ForgetLanes empties the cache: the numbers in it stand for other lanes now.
func (n *Numbers) ForgetLanes() {
	n.lanes.mu.Lock()
	defer n.lanes.mu.Unlock()
	clear(n.lanes.ids)
	clear(n.lanes.names)
	n.limits.forget()
}

func laneColumns(lanes []Lane) queries.CreateLanesParams {
	var c queries.CreateLanesParams
	for _, l := range lanes {
		c.Queues = append(c.Queues, l.Queue)
		c.Jobs = append(c.Jobs, l.Job)
		c.Priorities = append(c.Priorities, l.Priority)
	}
	return c
}

// LaneOf is the lane that a run needs.
func LaneOf(run *store.NewRun) Lane {
	return Lane{run.Queue, run.Job, int16(run.Priority)} //nolint:gosec // checked: -4 to 4
}

// SameLane reports whether two runs need the same lane.
func SameLane(a, b *store.NewRun) bool {
	return a.Job == b.Job && a.Queue == b.Queue && a.Priority == b.Priority
}
