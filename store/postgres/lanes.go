package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// lane is what a lane's number means.
type lane struct {
	queue, job string
	priority   int16
}

func compareLanes(a, b lane) int {
	return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.job, b.job), cmp.Compare(a.priority, b.priority))
}

// laneCache remembers the numbers of lanes. Only committed ones get here, and they never
// change as long as the schema exists: lanes are never deleted. To delete a lane, its number
// must be in no run, but runs have no index by lane; and no enqueue in progress may have read
// it, which would take a lock on the lane by every enqueue. Both cost more than the row of a
// name that is not used. So the table is not bounded, but this cache is.
type laneCache struct {
	mu    sync.RWMutex
	ids   map[lane]store.LaneID
	names map[store.LaneID]uint64 // see namesOf; of lanes that workers of this process serve
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

// laneCacheMost is far above what a program needs, unless it makes up names of queues.
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
type laneSet map[lane]store.LaneID

// laneIDs finds the numbers of the lanes named in the set, making those that
// are new. It uses a connection of its own, whatever transaction the caller is
// in: a lane made in a transaction that is rolled back would leave its number
// in caches, and one that waits would block every caller that needs it. A
// caller that holds a connection of this store must not call it: if every connection
// is held by a call that waits for a second one, all of them wait until their
// contexts end. Such calls find their lanes earlier, or with lanesIn.
func (s *Store) laneIDs(ctx context.Context, set laneSet) error {
	missing, err := s.findLanes(ctx, s.db.Aloof(), set)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := s.createLanes(ctx, laneColumns(missing)); err != nil {
		return err
	}
	if missing, err = s.findLanes(ctx, s.db.Aloof(), set); err == nil && len(missing) > 0 {
		err = fmt.Errorf("%d lanes could not be made", len(missing))
	}
	return err
}

// lanesIn is laneIDs for a transaction of this store: it asks on the
// transaction's own connection. Lanes that are new end the transaction with
// newLanesError, and withLanes begins it again once they are made.
func (s *Store) lanesIn(ctx context.Context, tx pgx.Tx, set laneSet) error {
	missing, err := s.findLanes(ctx, tx, set)
	if err == nil && len(missing) > 0 {
		err = &newLanesError{lanes: missing}
	}
	return err
}

// newLanesError is the error of a transaction that needs lanes that are not there.
type newLanesError struct {
	lanes  []lane
	limits []limitLane
}

// Error says how many are missing.
func (n *newLanesError) Error() string {
	return fmt.Sprintf("%d lanes are new", len(n.lanes)+len(n.limits))
}

// refusedLanes are lanes that the database refuses to make, and why.
type refusedLanes map[lane]error

// withLanes runs a function in a transaction, as inTx and repeat do, that finds its
// lanes with lanesIn. Lanes that cannot be made are noted for the repetition, unless
// refused is nil: then they are the error.
func (s *Store) withLanes(ctx context.Context, pool *pgxpool.Pool, refused refusedLanes, do func(pgx.Tx) error) error {
	for try := 1; ; try++ {
		err := s.db.Repeat(ctx, func() error {
			if pool == s.db.Engine {
				s.db.Sparing.Enter(ctx, conn.HotWait)
				defer s.db.Sparing.Leave()
			}
			return conn.InTx(ctx, pool, do)
		})
		missing := (*newLanesError)(nil)
		if try == 10 || !errors.As(err, &missing) {
			return err
		}
		if len(missing.limits) > 0 {
			if err = s.createLimitLanes(ctx, missing.limits); err != nil {
				return err
			}
			continue
		}
		err = s.createLanes(ctx, laneColumns(missing.lanes))
		if conn.RefusesRows(err) && refused != nil {
			err = s.createEach(ctx, missing.lanes, refused)
		}
		if err != nil {
			return err
		}
	}
}

func (s *Store) createEach(ctx context.Context, lanes []lane, refused refusedLanes) error {
	for _, l := range lanes {
		err := s.createLanes(ctx, laneColumns([]lane{l}))
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
func (s *Store) findLanes(ctx context.Context, in queries.DBTX, set laneSet) (missing []lane, err error) {
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
		return nil, nil
	}
	slices.SortFunc(missing, compareLanes)
	rows, err := s.db.Queries(in).Lanes(ctx, queries.LanesParams(laneColumns(missing)))
	if err != nil {
		return nil, err
	}
	found := make(laneSet, len(rows))
	for _, row := range rows {
		l := lane{row.Queue, row.Job, row.Priority}
		set[l], found[l] = row.ID, row.ID
	}
	s.lanes.remember(found)
	return slices.DeleteFunc(missing, func(l lane) bool { _, ok := found[l]; return ok }), nil
}

// createLanes makes lanes, paused as their queues are.
func (s *Store) createLanes(ctx context.Context, names queries.CreateLanesParams) error {
	return s.db.Repeat(ctx, func() error {
		b := s.db.Guarded(ctx)
		b.Add(queries.TouchQueues, names.Queues)
		b.Add(queries.ShareQueues, names.Queues)
		b.Add(queries.CreateLanes, names.Queues, names.Jobs, names.Priorities)
		return s.db.Send(ctx, s.db.Aloof(), b)
	})
}

// forgetLanes empties the cache: the numbers in it stand for other lanes now.
func (s *Store) forgetLanes() {
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	clear(s.lanes.ids)
	clear(s.lanes.names)
	s.limits.forget()
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

func laneOf(run *store.NewRun) lane {
	return lane{run.Queue, run.Job, int16(run.Priority)} //nolint:gosec // checked: -4 to 4
}

// Heads returns the lanes a worker serves with their first waiting runs.
func (s *Store) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	if err := s.schema.Usable(ctx); err != nil {
		return nil, s.db.Fail("heads", err)
	}
	var heads []store.Head
	var capped []bool
	limited := false
	b := s.db.Guarded(ctx)
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
	if err := s.db.SendInBackground(ctx, b); err != nil {
		return nil, s.db.Fail("heads", err)
	}
	s.lanes.learn(heads)
	s.wake.Leave(serves, heads)
	s.capped.Learn(heads, capped)
	if limited {
		heads = append(heads, s.turnHeads(ctx, &serves)...)
	}
	return heads, nil
}

// turnHeads returns the heads of the lines of turns. If they cannot be read, limited runs
// wait, and the others do not wait for them.
func (s *Store) turnHeads(ctx context.Context, serves *store.Serves) (heads []store.Head) {
	b := s.db.Guarded(ctx)
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
	if err := s.db.Send(ctx, s.db.Engine, b); err != nil {
		if ctx.Err() == nil {
			s.db.Log.Error("the turns of limited runs could not be read: they wait", "event", "limit.turns_unreadable", "error", err)
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
