package numbers

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

// WorkerOf returns the number that leases and runs refer to a worker by.
func (n *Numbers) WorkerOf(ctx context.Context, worker store.WorkerID) (int32, error) {
	n.workers.mu.Lock()
	id, known := n.workers.ids[worker.Instance]
	n.workers.mu.Unlock()
	if known {
		return id, nil
	}
	return n.RegisterWorker(ctx, worker)
}

// RegisterWorker inserts the row of the worker.
func (n *Numbers) RegisterWorker(ctx context.Context, worker store.WorkerID) (int32, error) {
	var id int32
	err := n.db.Repeat(ctx, func() error { // another call may do the same for this worker
		return n.db.InBackground(ctx, func() (err error) {
			id, err = n.db.Queries(n.db.Engine).RegisterWorker(ctx, queries.RegisterWorkerParams{Instance: worker.Instance, Name: worker.Name, Version: conn.Small(schema.Latest())})
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	n.workers.ids[worker.Instance] = id
	n.db.Beats.Open()
	return id, nil
}

// count returns how many workers of this process have registered.
func (c *workerCache) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}

// Workers returns how many workers of this process have registered.
func (n *Numbers) Workers() int { return n.workers.count() }

// Forget empties all caches: another server answers, or the tables that the numbers are
// from are gone.
func (n *Numbers) Forget() {
	n.ForgetLanes()
	n.schedules.forget()
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	clear(n.workers.ids)
}
