package postgres

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
	"github.com/durable-worker/durable-worker/store/postgres/internal/schema"
)

// workerCache remembers the numbers of worker processes.
type workerCache struct {
	mu  sync.Mutex
	ids map[uuid.UUID]int32
}

// workerID returns the number that leases and runs refer to a worker by.
func (s *Store) workerID(ctx context.Context, worker store.WorkerID) (int32, error) {
	s.workers.mu.Lock()
	id, known := s.workers.ids[worker.Instance]
	s.workers.mu.Unlock()
	if known {
		return id, nil
	}
	return s.registerWorker(ctx, worker)
}

// registerWorker inserts the row of the worker.
func (s *Store) registerWorker(ctx context.Context, worker store.WorkerID) (int32, error) {
	var id int32
	err := s.db.Repeat(ctx, func() error { // another call may do the same for this worker
		return s.db.InBackground(ctx, func() (err error) {
			id, err = s.db.Queries(s.db.Engine).RegisterWorker(ctx, queries.RegisterWorkerParams{Instance: worker.Instance, Name: worker.Name, Version: conn.Small(schema.Latest())})
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	s.workers.ids[worker.Instance] = id
	s.db.Beats.Open()
	return id, nil
}

// count returns how many workers of this process have registered.
func (c *workerCache) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}

// works reports whether a worker of this process has registered.
func (s *Store) works() bool {
	return s.workers.count() > 0
}

// forgetWorkers empties the cache, because the tables that the numbers are from are gone.
func (s *Store) forgetWorkers() {
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	clear(s.workers.ids)
}

// process is what the waker has to know of this process.
type process struct{ store *Store }

// Workers returns how many workers have registered.
func (p process) Workers() int { return p.store.workers.count() }

// NamesOf returns the hash of a lane's names; zero: they are not known.
func (p process) NamesOf(lane store.LaneID) uint64 { return p.store.lanes.name(lane) }
