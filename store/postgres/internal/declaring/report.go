package declaring

import (
	"context"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// ReportWorker stores what a worker is and did, in one statement. It goes through a
// connection of the engine's, as declarations do, so that an idle worker keeps no other.
func (dc *Declarer) ReportWorker(ctx context.Context, report store.WorkerReport) (store.Shared, error) {
	if err := report.Check(); err != nil {
		return store.Shared{}, err
	}
	if err := dc.schema.Usable(ctx); err != nil {
		return store.Shared{}, dc.db.Fail("report", err)
	}
	params, err := reportParams(&report)
	if err != nil {
		return store.Shared{}, dc.db.Fail("report", err)
	}
	row, err := dc.report(ctx, params)
	if err == nil && !row.Known { // it has not declared itself, or its row is gone
		if _, err = dc.numbers.RegisterWorker(ctx, report.Worker); err == nil {
			row, err = dc.report(ctx, params)
		}
	}
	if err != nil {
		return store.Shared{}, dc.db.Fail("report", err)
	}
	shared := store.Shared{Now: row.Now.UTC(), Alive: int(row.Others)}
	if !report.Stopped {
		shared.Alive++
	}
	return shared, nil
}

func (dc *Declarer) report(ctx context.Context, params queries.ReportWorkerParams) (row queries.ReportWorkerRow, err error) {
	err = dc.db.Repeat(ctx, func() error {
		return dc.db.InBackground(ctx, func() (err error) {
			row, err = dc.db.Queries(dc.db.Engine).ReportWorker(ctx, params)
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
		p.Waits, p.Took = append(p.Waits, conn.NumberArray(did.Wait[:])), append(p.Took, conn.NumberArray(did.Took[:]))
	}
	return p, err
}
