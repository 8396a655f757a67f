package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// ReportWorker stores what a worker is and did, in one statement. It goes through a
// connection of the engine's, as declarations do, so that an idle worker keeps no other.
func (s *Store) ReportWorker(ctx context.Context, report store.WorkerReport) (store.Shared, error) {
	if err := report.Check(); err != nil {
		return store.Shared{}, err
	}
	if err := s.schema.Usable(ctx); err != nil {
		return store.Shared{}, s.db.Fail("report", err)
	}
	params, err := reportParams(&report)
	if err != nil {
		return store.Shared{}, s.db.Fail("report", err)
	}
	row, err := s.report(ctx, params)
	if err == nil && !row.Known { // it has not declared itself, or its row is gone
		if _, err = s.registerWorker(ctx, report.Worker); err == nil {
			row, err = s.report(ctx, params)
		}
	}
	if err != nil {
		return store.Shared{}, s.db.Fail("report", err)
	}
	shared := store.Shared{Now: row.Now.UTC(), Alive: int(row.Others)}
	if !report.Stopped {
		shared.Alive++
	}
	return shared, nil
}

func (s *Store) report(ctx context.Context, params queries.ReportWorkerParams) (row queries.ReportWorkerRow, err error) {
	err = s.db.Repeat(ctx, func() error {
		return s.db.InBackground(ctx, func() (err error) {
			row, err = s.db.Queries(s.db.Engine).ReportWorker(ctx, params)
			return err
		})
	})
	return row, err
}

func reportParams(report *store.WorkerReport) (queries.ReportWorkerParams, error) {
	text, err := rules.PresenceText(&report.Presence)
	p := queries.ReportWorkerParams{Instance: report.Worker.Instance, Stopped: report.Stopped, Number: report.Number, Report: text,
		Within: conn.Micro(rules.SilentAfter(report.Presence.Every))}
	for _, span := range store.Spans() {
		p.Spans = append(p.Spans, int16(span))
	}
	for _, did := range store.Summed(report.Did) {
		p.Queues, p.Jobs = append(p.Queues, did.Queue), append(p.Jobs, did.Job)
		p.Enqueued, p.Succeeded = append(p.Enqueued, did.Enqueued), append(p.Succeeded, did.Succeeded)
		p.Failed, p.Dead = append(p.Failed, did.Failed), append(p.Dead, did.Dead)
		p.Cancelled, p.Crashed = append(p.Cancelled, did.Cancelled), append(p.Crashed, did.Crashed)
		p.Busy = append(p.Busy, conn.Micro(time.Duration(did.Busy)))
		p.Waits, p.Took = append(p.Waits, numberArray(did.Wait[:])), append(p.Took, numberArray(did.Took[:]))
	}
	return p, err
}

// Series returns what workers did.
func (s *Store) Series(ctx context.Context, query store.SeriesQuery) ([]store.SeriesPoint, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	var rows []queries.SeriesRow
	first, last := query.Queue, query.Queue
	if query.Queue == "" && query.Scope != store.AllLanes {
		last = "\U0010ffff" // above all names
	}
	err := s.inspect(ctx, func(b *conn.Batch) {
		b.Add(queries.Series, conn.Micro(query.Length()), !query.NoTimes, int16(query.Span), conn.Micro(query.Within), int32(store.MaxSeriesPoints), query.Scope == store.AllLanes, query.Job, first, last).Query(conn.Collect(&rows))
	})
	if err != nil {
		return nil, s.db.Fail("series", err)
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
