package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// laneName is what makes a lane.
type laneName struct {
	queue    string
	job      string
	priority int
}

// lanesMost bounds what is remembered: it is far above what a program uses that
// does not invent queues.
const lanesMost = 10_000

// lanes remembers the numbers of lanes that are committed. A lane is never
// deleted, so what is remembered stays true.
type lanes struct {
	mu     sync.Mutex // guards byName
	byName map[laneName]int64
}

func newLanes() *lanes { return &lanes{byName: make(map[laneName]int64)} }

func (l *lanes) find(name laneName) (int64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, ok := l.byName[name]
	return id, ok
}

func (l *lanes) add(fresh *lanes) {
	if len(fresh.byName) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName == nil {
		l.byName = make(map[laneName]int64)
	}
	maps.Copy(l.byName, fresh.byName)
	for name := range l.byName {
		if len(l.byName) <= lanesMost {
			return
		}
		delete(l.byName, name)
	}
}

// lane finds the number of a lane and makes the lane when it is new.
func (s *Store) lane(ctx context.Context, c *change, fresh *lanes, name laneName) (int64, error) {
	if id, ok := s.lanes.find(name); ok {
		return id, nil
	}
	if id, ok := fresh.byName[name]; ok {
		return id, nil
	}
	id, err := c.FindLane(ctx, queries.FindLaneParams{Queue: name.queue, Job: name.job, Priority: int64(name.priority)})
	if errors.Is(err, sql.ErrNoRows) {
		id, err = c.InsertLane(ctx, queries.InsertLaneParams{Queue: name.queue, Job: name.job, Priority: int64(name.priority)})
	}
	if err != nil {
		return 0, err
	}
	fresh.byName[name] = id
	return id, nil
}

// Heads returns the served lanes by number, the line of isolated runs after
// its lane.
func (s *Store) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	heads, err := s.heads(ctx, serves)
	if err != nil {
		return nil, fmt.Errorf("heads: %w", s.explain(err))
	}
	return heads, nil
}

func (s *Store) heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := reader.ListHeads(ctx, queries.ListHeadsParams{Queues: list(serves.Queues), Jobs: list(serves.Jobs)})
	if err != nil {
		return nil, err
	}
	now := s.clock.now()
	var heads []store.Head
	var capped []bool
	for _, row := range rows {
		heads, capped = append(heads, head(row, store.LaneID(row.ID), row.DueAt, now)), append(capped, row.Capped != 0)
		if row.IsolatedDueAt >= 0 {
			heads, capped = append(heads, head(row, -store.LaneID(row.ID), row.IsolatedDueAt, now)), append(capped, row.Capped != 0)
		}
	}
	s.capped.Learn(heads, capped)
	turns, err := reader.ListTurnHeads(ctx, queries.ListTurnHeadsParams{Queues: list(serves.Queues), Jobs: list(serves.Jobs)})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil: // limited runs wait; the others do not wait for them
		s.logger.Error("the turns of limited runs could not be read: they wait", "event", "limit.turns_unreadable", "error", err)
	}
	return append(heads, headsOfTurns(turns, now)...), nil
}

// headsOfTurns are the heads of the lines of turns that say anything about served
// lanes: those of the lanes in which limited runs have waited, of their isolated
// runs, and of the limits.
func headsOfTurns(rows []queries.ListTurnHeadsRow, now int64) (heads []store.Head) {
	first := map[int64]queries.ListTurnHeadsRow{} // of each limit: the lane of the highest priority
	seen := map[int64]bool{}
	turns := func(row queries.ListTurnHeadsRow, lane store.LaneID, line store.LineID, due int64) store.Head {
		h := head(queries.ListHeadsRow{Queue: row.Queue, Job: row.Job, Priority: row.Priority}, lane, due, now)
		h.Line = line
		return h
	}
	for _, row := range rows {
		if known, found := first[row.LimitID]; !found || known.Priority < row.Priority {
			first[row.LimitID] = row
		}
		if seen[row.ID] {
			continue
		}
		seen[row.ID] = true
		lane := store.LaneID(row.ID)
		heads = append(heads, turns(row, lane, lane, row.DueAt))
		if row.IsolatedDueAt >= 0 {
			heads = append(heads, turns(row, -lane, -lane, row.IsolatedDueAt))
		}
	}
	for _, limit := range slices.Sorted(maps.Keys(first)) {
		row := first[limit]
		heads = append(heads, turns(row, 0, admit.LimitLine(store.LimitID(limit)), row.LimitDueAt)) //nolint:gosec // at most store.MaxLimitID
	}
	return heads
}

func head(row queries.ListHeadsRow, lane store.LaneID, due, now int64) store.Head {
	h := store.Head{Lane: lane, Queue: row.Queue, Job: row.Job, Priority: int(row.Priority)}
	if due >= 0 {
		h.Waiting = true
		h.DueAt = instant(due)
		h.In = duration(due - now)
	}
	return h
}

// list writes values as a JSON array, for json_each; none are [].
func list[T any](values []T) string {
	if len(values) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(values) // strings and numbers always can be
	return string(text)
}
