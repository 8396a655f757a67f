package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const (
	// countMost is how far runs are counted one by one.
	countMost = 100_000
	// samplePages is how many pages of a table are read for an estimate that the
	// server has no figures for.
	samplePages = 500
)

// Counts returns the number of runs in each state: exact up to a hundred
// thousand of each, and above that an estimate, from the figures of the last
// vacuum or analyze and the size of the table as it is now, or from a sample of
// its pages when there was none.
func (s *Store) Counts(ctx context.Context) (map[store.State]store.Count, error) {
	if err := s.usable(ctx); err != nil {
		return nil, s.fail("counts", err)
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	counts, err := s.counts(ctx)
	if err != nil {
		return nil, s.fail("counts", err)
	}
	return counts, nil
}

func (s *Store) counts(ctx context.Context) (map[store.State]store.Count, error) {
	var row queries.CountSomeRow
	b := s.guarded(ctx)
	b.add(queries.CountSome, int32(countMost+1)).Query(func(rows pgx.Rows) (err error) {
		row, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[queries.CountSomeRow])
		return err
	})
	if err := s.send(ctx, s.general, b); err != nil {
		return nil, err
	}
	look := lookMost
	if row.Total <= countMost {
		look = countMost // all of them
	}
	stranded, err := s.stranded(ctx, s.general, newest(look))
	if err != nil {
		return nil, err
	}
	row.Running += int64(len(stranded))
	total, ready, limited := counted(row.Total), counted(row.Ready), counted(row.Limited)
	dead, cancelled := counted(row.Dead), counted(row.Cancelled)
	if total.Estimated {
		total.N, err = s.estimate(ctx, "runs", total.N)
	}
	if err == nil && ready.Estimated {
		ready.N, err = s.estimate(ctx, "ready", ready.N)
	}
	if err == nil && limited.Estimated {
		limited.N, err = s.estimate(ctx, "waiting", limited.N)
	}
	if err == nil && (dead.Estimated || cancelled.Estimated) {
		err = s.estimateProblems(ctx, &dead, &cancelled)
	}
	if err != nil {
		return nil, err
	}
	pending := store.Count{N: ready.N + limited.N, Estimated: ready.Estimated || limited.Estimated}
	counts := map[store.State]store.Count{
		store.Pending: pending, store.Running: counted(row.Running), store.Dead: dead, store.Cancelled: cancelled,
	}
	for _, count := range counts {
		total.N -= count.N
		total.Estimated = total.Estimated || count.Estimated
	}
	total.N = max(total.N, 0)
	counts[store.Succeeded] = total
	return counts, nil
}

// counted is a number that was counted up to the bound.
func counted(n int64) store.Count {
	return store.Count{N: min(n, countMost), Estimated: n > countMost}
}

// estimate is about how many rows a table has, at least as many as were counted.
func (s *Store) estimate(ctx context.Context, table string, least int64) (int64, error) {
	q := s.queries(s.general)
	row, err := q.EstimateRows(ctx, queries.EstimateRowsParams{SchemaName: s.config.Schema, TableName: table})
	if err != nil || row.Estimate >= 0 {
		return max(row.Estimate, least), err
	}
	percent := percentOf(row.Pages)
	var n int64
	switch table {
	case "runs":
		n, err = q.SampleRuns(ctx, queries.SampleRunsParams{Percent: percent})
	case "ready":
		n, err = q.SampleReady(ctx, queries.SampleReadyParams{Percent: percent})
	case "waiting":
		n, err = q.SampleWaiting(ctx, queries.SampleWaitingParams{Percent: percent})
	default:
		return 0, fmt.Errorf("no sample of %s", table)
	}
	return max(int64(float64(n)*100/float64(percent)), least), err
}

// percentOf is how much of a table of so many pages is read for a sample.
func percentOf(pages int64) float32 {
	return float32(min(100, 100*float64(samplePages)/float64(max(pages, 1))))
}

// estimateProblems shares what problems holds between its two states by a
// sample.
func (s *Store) estimateProblems(ctx context.Context, dead, cancelled *store.Count) error {
	q := s.queries(s.general)
	row, err := q.EstimateRows(ctx, queries.EstimateRowsParams{SchemaName: s.config.Schema, TableName: "problems"})
	if err != nil {
		return err
	}
	percent := percentOf(row.Pages)
	sample, err := q.SampleProblems(ctx, queries.SampleProblemsParams{Percent: percent})
	if err != nil {
		return err
	}
	scale := 100 / float64(percent)
	if all := sample.Dead + sample.Cancelled; row.Estimate >= 0 && all > 0 {
		scale = float64(row.Estimate) / float64(all)
	}
	if dead.Estimated {
		dead.N = max(int64(float64(sample.Dead)*scale), dead.N)
	}
	if cancelled.Estimated {
		cancelled.N = max(int64(float64(sample.Cancelled)*scale), cancelled.N)
	}
	return nil
}
