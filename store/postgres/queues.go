package postgres

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const (
	// laneCountMost bounds how many runs of one line are counted for the list of
	// queues.
	laneCountMost = 10_000
	// laneCountLeast is how many are counted however many lanes there are.
	laneCountLeast = 1000
	// lanesCountMost bounds how many are counted of all lines together, otherwise.
	lanesCountMost = 100_000
)

// laneBound is up to how many runs each line is counted: the more lanes, the fewer.
func (s *Store) laneBound(ctx context.Context) (int64, error) {
	var lanes []int32
	err := s.inspect(ctx, func(b *batch) {
		b.add(queries.FilteredLanes, []string{}, []string{}).Query(func(rows pgx.Rows) (err error) {
			lanes, err = pgx.CollectRows(rows, pgx.RowTo[int32])
			return err
		})
	})
	return int64(max(laneCountLeast, min(laneCountMost, lanesCountMost/max(len(lanes), 1)))), err
}

// Queues lists the queues by name. Of a lane no more than ten thousand runs are counted,
// and fewer where there are more than ten lanes, but a thousand at least: the number of its
// queue is then a lower bound, and marked as one.
func (s *Store) Queues(ctx context.Context) ([]store.QueueInfo, error) {
	if err := s.usable(ctx); err != nil {
		return nil, s.fail("queues", err)
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	most, err := s.laneBound(ctx)
	if err != nil {
		return nil, s.fail("queues", err)
	}
	var rows []queries.ListQueuesRow
	b := s.guarded(ctx)
	b.add(queries.ListQueues, int32(laneCountMost), small(int(most))).Query(func(found pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(found, pgx.RowToStructByPos[queries.ListQueuesRow])
		return err
	})
	if err := s.send(ctx, s.reading, b); err != nil {
		return nil, s.fail("queues", err)
	}
	queues := make([]store.QueueInfo, len(rows))
	for i, row := range rows {
		queues[i] = store.QueueInfo{Name: row.Name, Paused: row.Paused,
			Pending: store.Count{N: row.Pending, AtLeast: row.Largest >= most}}
		if row.Pending > 0 {
			queues[i].OldestDue = timesUTC(&rows[i].Oldest)
		}
		if row.Cap >= 0 {
			most := int(row.Cap)
			queues[i].MaxConcurrent = &most
		}
	}
	return queues, nil
}

// SetQueue pauses or resumes a queue: its row, and the copy in its lanes, which
// is what claims look at.
func (s *Store) SetQueue(ctx context.Context, name string, action store.QueueAction, by string) error {
	if err := store.CheckQueueChange(name, action, by); err != nil {
		return err
	}
	if err := s.usable(ctx); err != nil {
		return s.fail(string(action)+" queue", err)
	}
	wanted := action == store.PauseQueue
	try := func(most time.Duration) error {
		return inTx(ctx, s.general, func(tx pgx.Tx) error {
			q := s.queries(tx)
			lock, statement := limits(ctx, most)
			if err := q.Limits(ctx, queries.LimitsParams{LockTimeout: lock, StatementTimeout: statement}); err != nil {
				return err
			}
			paused, err := lockQueue(ctx, q, name, wanted)
			if err != nil || paused == wanted {
				return err
			}
			if err := q.SetQueue(ctx, queries.SetQueueParams{Paused: wanted, Name: name}); err != nil {
				return err
			}
			if err := q.SetLanesPaused(ctx, queries.SetLanesPausedParams{Queue: name}); err != nil {
				return err
			}
			return q.AuditChange(ctx, queries.AuditChangeParams{Actor: by, Kind: rules.KindQueue, Subject: name, Action: string(action)})
		})
	}
	err := s.briefly(ctx, heldLimit, lockLimit, func(most time.Duration) error {
		return s.repeat(ctx, func() error { return try(most) })
	})
	if err != nil {
		return s.fail(string(action)+" queue", err)
	}
	s.hint()
	return nil
}

// lockQueue reports whether a queue is paused and locks its row. It makes the row
// for a pause alone.
func lockQueue(ctx context.Context, q *queries.Queries, name string, pause bool) (paused bool, err error) {
	if pause {
		return q.LockQueue(ctx, queries.LockQueueParams{Name: name})
	}
	rows, err := q.LockKnownQueue(ctx, queries.LockKnownQueueParams{Name: name})
	return err == nil && len(rows) > 0 && rows[0], err
}

// Changes lists what was audited, newest first.
func (s *Store) Changes(ctx context.Context, filter store.ChangeFilter) (store.ChangePage, error) {
	limit, err := filter.Most()
	if err != nil {
		return store.ChangePage{}, err
	}
	if err := s.usable(ctx); err != nil {
		return store.ChangePage{}, s.fail("changes", err)
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	page, err := s.changes(ctx, &filter, limit)
	if err != nil {
		return store.ChangePage{}, s.fail("changes", err)
	}
	return page, nil
}

func (s *Store) changes(ctx context.Context, filter *store.ChangeFilter, limit int) (page store.ChangePage, err error) {
	before := filter.Before
	if before == 0 {
		before = math.MaxInt64
	}
	list, floor := queries.ChangesOf, int64(0)
	if filter.Kind == "" || filter.Subject == "" {
		list = queries.Changes
		rows, err := s.queries(s.reading).FloorOfChanges(ctx, queries.FloorOfChangesParams{Before: before, Skip: pageMost - 1})
		if err != nil {
			return page, err
		}
		for _, id := range rows {
			floor = id
		}
	}
	since := filter.Since
	if since.IsZero() {
		since = time.Unix(0, 0)
	}
	b := s.guarded(ctx)
	b.add(list, before, floor, filter.Kind, filter.Subject, filter.By, filter.Action, since, small(limit)).Query(func(found pgx.Rows) error {
		page = store.ChangePage{Changes: []store.Change{}, Next: floor}
		rows, err := pgx.CollectRows(found, pgx.RowToStructByPos[queries.ChangesRow])
		for _, row := range rows {
			page.Changes = append(page.Changes, toChange(&row))
		}
		return err
	})
	if err := s.send(ctx, s.reading, b); err != nil {
		return page, err
	}
	if len(page.Changes) == limit {
		page.Next = page.Changes[limit-1].ID
	}
	return page, nil
}
