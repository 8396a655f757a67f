// Package numbers knows the numbers by which rows of a PostgreSQL store refer to lanes, limits,
// workers and schedules.
//
// A run does not repeat the names of its queue and job: its row holds the number of its lane,
// which is that of a queue, a job and a priority. Limits, worker processes and schedules have
// numbers too. Each call that stores or claims runs has to translate, so each process remembers
// what it has read. Four rules make that safe:
//
//   - Only what is committed is remembered. A lane or a worker that is new is made in a
//     transaction of its own, whatever transaction the caller is in: if that one is rolled back,
//     the number is still valid.
//   - A number never comes to mean something else while the same server answers, because rows of
//     lanes, limits and workers are not reused. After a failover, or when the tables are gone,
//     Forget empties all caches.
//   - A statement that stores runs verifies the numbers that it is given, and fails with
//     not_null_violation where one has another meaning. The caller then forgets the lanes,
//     and repeats the call.
//   - The caches are bounded, as names of queues and keys may be made up by users.
//
// A caller that holds a connection of the store must not wait for a second one, or all callers
// may wait for each other. LaneIDs and PlaceIDs therefore come before a transaction; within one,
// LanesIn and PlacesIn ask on its own connection, and WithLanes begins the transaction again after
// it has made the lanes that are missing.
//
// Places are the lanes and limits that some runs need. Runs whose limits are not known, or may not
// be used in this way, are refused before anything is stored.
package numbers

import (
	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
)

// Numbers remembers the numbers that one process has read.
type Numbers struct {
	db        *conn.DB
	lanes     laneCache
	limits    limitCache
	workers   workerCache
	schedules scheduleNames
}

// New returns the numbers of a database, of which it knows none yet.
func New(db *conn.DB) *Numbers {
	return &Numbers{
		db:      db,
		lanes:   laneCache{ids: map[Lane]store.LaneID{}},
		limits:  limitCache{byName: LimitSet{}, lanes: map[LimitLane]struct{}{}},
		workers: workerCache{ids: map[uuid.UUID]int32{}},
	}
}
