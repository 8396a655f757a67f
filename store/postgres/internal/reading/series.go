package reading

import (
	"context"
	"slices"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// Series returns what workers did.
func (r *Reader) Series(ctx context.Context, query store.SeriesQuery) ([]store.SeriesPoint, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	var rows []queries.SeriesRow
	first, last := query.Queue, query.Queue
	if query.Queue == "" && query.Scope != store.AllLanes {
		last = "\U0010ffff" // above all names
	}
	err := r.inspect(ctx, func(b *conn.Batch) {
		b.Add(queries.Series, conn.Micro(query.Length()), !query.NoTimes, int16(query.Span), conn.Micro(query.Within), int32(store.MaxSeriesPoints), query.Scope == store.AllLanes, query.Job, first, last).Query(conn.Collect(&rows))
	})
	if err != nil {
		return nil, r.db.Fail("series", err)
	}
	points := make([]store.SeriesPoint, len(rows))
	for i, row := range rows {
		p := store.SeriesPoint{At: row.At.UTC(), LaneTally: store.LaneTally{Queue: row.Queue, Job: row.Job, Tally: store.Tally{
			Enqueued: row.Enqueued, Succeeded: row.Succeeded, Failed: row.Failed, Dead: row.Dead, Cancelled: row.Cancelled,
			Crashed: row.Crashed, Busy: store.Duration(conn.FromMicro(row.Busy))}}}
		copy(p.Wait[:], row.Wait)
		copy(p.Took[:], row.Took)
		points[i] = p
	}
	slices.Reverse(points)
	return points, nil
}
