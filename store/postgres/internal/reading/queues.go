package reading

import (
	"context"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Queues lists the queues by name.
func (r *Reader) Queues(ctx context.Context) ([]store.QueueInfo, error) {
	var rows []queries.ListQueuesRow
	err := r.inspect(ctx, func(b *conn.Batch) { b.Add(queries.ListQueues).Query(conn.Collect(&rows)) })
	if err != nil {
		return nil, r.db.Fail("queues", err)
	}
	queues := make([]store.QueueInfo, len(rows))
	for i, row := range rows {
		queues[i] = store.QueueInfo{Name: row.Name, Paused: row.Paused}
		if row.Cap >= 0 {
			most := int(row.Cap)
			queues[i].MaxConcurrent = &most
		}
	}
	return queues, nil
}
