package numbers

import (
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// ScheduleNames remembers what schedules are called. While one server answers, their numbers are never used
// again, and their names never change.
type scheduleNames struct {
	mu    sync.Mutex
	names map[int32]string // empty: it has been deleted
}

// schedulesMost bounds the names that are remembered.
const schedulesMost = 10_000

// forget empties the cache: the numbers in it may stand for other schedules now.
func (n *scheduleNames) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.names)
}

// NamesOfSchedules returns the names of the schedules that runs are of, by their numbers. A server
// that refuses to say them keeps no run from being executed: they are empty then.
func (n *Numbers) NamesOfSchedules(ctx context.Context, schedules map[store.RunID]int32) (map[int32]string, error) {
	names, unknown := n.schedules.of(schedules)
	if len(unknown) == 0 {
		return names, nil
	}
	rows, err := n.db.Queries(n.db.Engine).ScheduleNames(ctx, queries.ScheduleNamesParams{Ids: unknown})
	switch {
	case conn.Code(err) != "" && !strings.HasPrefix(conn.Code(err), "57P"): // the server stays: asking again would not help, and other runs wait for this claim
		n.db.Log.Warn("the names of schedules cannot be read; their runs are executed without them", "event", "schedule.names_unreadable", "error", err)
		return names, nil
	case err != nil:
		return nil, err
	}
	for _, row := range rows {
		names[row.ID] = row.Name
	}
	n.schedules.learn(names)
	return names, nil
}

// of returns the names that are known, and the numbers of the other schedules, whose
// names are empty.
func (n *scheduleNames) of(schedules map[store.RunID]int32) (names map[int32]string, unknown []int32) {
	names = map[int32]string{}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range schedules {
		if _, seen := names[id]; seen {
			continue
		}
		name, known := n.names[id]
		if names[id] = name; !known {
			unknown = append(unknown, id)
		}
	}
	return names, unknown
}

// learn adds names.
func (n *scheduleNames) learn(names map[int32]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.names == nil || len(n.names) > schedulesMost {
		n.names = map[int32]string{}
	}
	maps.Copy(n.names, names)
}
