package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite/internal/queries"
)

// ReportWorker stores what a worker is and did.
func (s *Store) ReportWorker(ctx context.Context, report store.WorkerReport) (store.Shared, error) {
	if err := report.Check(); err != nil {
		return store.Shared{}, err
	}
	var shared store.Shared
	err := s.write(ctx, enqueues, func(ctx context.Context, c *change) (err error) {
		shared, err = c.report(ctx, &report)
		return err
	})
	if err != nil {
		return store.Shared{}, fmt.Errorf("report: %w", err)
	}
	return shared, nil
}

func (c *change) report(ctx context.Context, report *store.WorkerReport) (store.Shared, error) {
	shared := store.Shared{Now: instant(c.now)}
	text, err := rules.PresenceText(&report.Presence)
	if err != nil {
		return shared, err
	}
	row := queries.ReportWorkerParams{Instance: report.Worker.Instance[:], Name: report.Worker.Name, Now: c.now, Number: report.Number, Report: &text}
	if report.Stopped {
		row.Report = nil
	}
	stored, err := c.ReportWorker(ctx, row)
	if err != nil {
		return shared, err
	}
	if stored > 0 {
		if err := c.addStats(ctx, report.Did); err != nil {
			return shared, err
		}
	}
	since := c.now - rules.SilentAfter(report.Presence.Every).Microseconds()
	alive, err := c.CountReported(ctx, queries.CountReportedParams{Since: &since})
	shared.Alive = int(alive)
	return shared, err
}

func (c *change) addStats(ctx context.Context, did []store.LaneTally) error {
	summed := store.Summed(did)
	for _, span := range store.Spans() {
		at := rules.StepOf(instant(c.now), span).UnixMicro()
		for i := range summed {
			if err := c.addStep(ctx, span, at, &summed[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *change) addStep(ctx context.Context, span store.Span, at int64, did *store.LaneTally) error {
	total := did.Tally
	text, err := c.FindStats(ctx, queries.FindStatsParams{Span: int64(span), Queue: did.Queue, Job: did.Job, At: at})
	if err == nil {
		var before store.Tally
		if err := json.Unmarshal([]byte(text), &before); err != nil {
			return err
		}
		total.Add(&before)
	} else if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	sum, err := json.Marshal(total)
	if err != nil {
		return err
	}
	return c.SetStats(ctx, queries.SetStatsParams{Span: int64(span), Queue: did.Queue, Job: did.Job, At: at, Tally: string(sum)})
}

// pruneStats deletes steps that are older than they are kept.
func (c *change) pruneStats(ctx context.Context) error {
	for _, span := range store.Spans() {
		if err := c.PruneStats(ctx, queries.PruneStatsParams{Span: int64(span), Before: c.now - span.Kept().Microseconds()}); err != nil {
			return err
		}
	}
	return nil
}

// Series returns what workers did.
func (s *Store) Series(ctx context.Context, query store.SeriesQuery) ([]store.SeriesPoint, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("series: %w", s.explain(err))
	}
	wanted := queries.ListStatsParams{Span: int64(query.Span), Since: s.clock.now() - query.Within.Microseconds(), Most: store.MaxSeriesPoints,
		Queue: query.Queue, Job: query.Job}
	if query.Scope == store.AllLanes {
		wanted.AllLanes = 1
	}
	rows, err := reader.ListStats(ctx, wanted)
	if err != nil {
		return nil, fmt.Errorf("series: %w", s.explain(err))
	}
	points := make([]store.SeriesPoint, len(rows))
	for i, row := range rows {
		points[i] = store.SeriesPoint{At: instant(row.At), LaneTally: store.LaneTally{Queue: row.Queue, Job: row.Job}}
		if err := json.Unmarshal([]byte(row.Tally), &points[i].Tally); err != nil {
			return nil, fmt.Errorf("series: %w", err)
		}
	}
	slices.Reverse(points)
	return rules.AddedUp(points, &query), nil
}
