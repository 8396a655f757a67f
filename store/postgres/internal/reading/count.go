package reading

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/conn"
	"github.com/durable-worker/durable-worker/store/postgres/internal/examine"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

const (
	// CountMost is how far runs are counted one by one in a table of any size.
	CountMost = 100_000
	// countWhole is how many runs a table may have for all of them to be counted.
	countWhole = 1_000_000
	// samplePages is how many pages of a table are read for an estimate that the
	// server has no figures for.
	samplePages = 500
	// sampleHits is how many runs of a state a sample has to have for an estimate
	// to follow from it.
	sampleHits = 100
	// countSoonMost is how far matching runs are counted for a caller that waits for less
	// than countSoon.
	countSoonMost = 5_000
	countSoon     = time.Second
)

// countMostFor returns how far runs that match a filter are counted: not far for a caller that
// does not wait, because a count that is given up has no number, and costs a connection.
func countMostFor(ctx context.Context) int {
	if conn.WaitsLess(ctx, countSoon) {
		return countSoonMost
	}
	return CountMost
}

// Counts returns the number of runs in each state. All numbers are exact up to a
// million runs. In a larger table, those of up to a hundred thousand runs are
// exact, except that of the succeeded runs, which no index knows: it is an
// estimate from a sample of the table's pages, or, where the sample has few of
// them, the number found among the newest and the oldest runs, as a lower bound.
// Larger ones are estimated from the figures of the last vacuum or analyze and
// the size of the table as it is now, or from a sample when there was none.
func (r *Reader) Counts(ctx context.Context) (map[store.State]store.Count, error) {
	if err := r.schema.Usable(ctx); err != nil {
		return nil, r.db.Fail("counts", err)
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	counts, err := r.counts(ctx)
	if err != nil {
		return nil, r.db.Fail("counts", err)
	}
	return counts, nil
}

func (r *Reader) counts(ctx context.Context) (map[store.State]store.Count, error) {
	row, most, err := r.countSome(ctx)
	if err != nil {
		return nil, err
	}
	examined := pageMost
	if row.Total <= CountMost {
		examined = CountMost // all of them
	}
	ids, err := examine.Stranded(ctx, r.db, r.db.Reading, examine.Newest(examined))
	if err != nil {
		return nil, err
	}
	row.Running += int64(len(ids))
	ready, limited := counted(row.Ready, most), counted(row.Limited, most)
	counts := map[store.State]store.Count{
		store.Pending: sum(ready, limited), store.Running: {N: row.Running, AtLeast: row.Running > most},
		store.Dead: counted(row.Dead, most), store.Cancelled: counted(row.Cancelled, most),
	}
	if row.Total <= most {
		// One snapshot has counted all runs and those of every other state.
		counts[store.Succeeded] = store.Count{N: max(row.Total-row.Ready-row.Limited-row.Running-row.Dead-row.Cancelled, 0)}
		return counts, nil
	}
	return counts, r.estimateCounts(ctx, ready, limited, counts)
}

// countSome counts the runs of each state that an index knows, and all runs, up
// to a bound that it returns. The bound is the larger one where the whole table
// seems to be within it.
func (r *Reader) countSome(ctx context.Context) (row queries.CountSomeRow, most int64, err error) {
	for _, most = range []int64{CountMost, countWhole} {
		b := r.db.Guarded(ctx)
		b.Add(queries.CountSome, int32(most+1)).Query(func(rows pgx.Rows) (err error) { //nolint:gosec // small
			row, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[queries.CountSomeRow])
			return err
		})
		if err := r.db.Send(ctx, r.db.Reading, b); err != nil || row.Total <= most || most == countWhole {
			return row, most, err
		}
		about, err := r.estimate(ctx, "runs", row.Total)
		if err != nil || about > countWhole {
			return row, most, err
		}
	}
	return row, most, nil
}

// estimateCounts replaces the numbers that were not counted to their end, and
// adds that of the succeeded runs.
func (r *Reader) estimateCounts(ctx context.Context, ready, limited store.Count, counts map[store.State]store.Count) (err error) {
	dead, cancelled := counts[store.Dead], counts[store.Cancelled]
	for table, count := range map[string]*store.Count{"ready": &ready, "waiting": &limited} {
		if count.Estimated {
			if count.N, err = r.estimate(ctx, table, count.N); err != nil {
				return err
			}
		}
	}
	if dead.Estimated || cancelled.Estimated {
		if err := r.estimateProblems(ctx, &dead, &cancelled); err != nil {
			return err
		}
	}
	counts[store.Pending], counts[store.Dead], counts[store.Cancelled] = sum(ready, limited), dead, cancelled
	counts[store.Succeeded], err = r.estimateSucceeded(ctx)
	return err
}

// estimateSucceeded estimates the succeeded runs of a large table directly, never as the
// difference between other estimates.
func (r *Reader) estimateSucceeded(ctx context.Context) (store.Count, error) {
	q := r.db.Queries(r.db.Reading)
	size, err := q.EstimateRows(ctx, queries.EstimateRowsParams{SchemaName: r.db.Names.Schema, TableName: "runs"})
	if err != nil {
		return store.Count{}, err
	}
	percent := percentOf(size.Pages)
	sample, err := q.SampleRuns(ctx, queries.SampleRunsParams{Percent: percent})
	if err != nil {
		return store.Count{}, err
	}
	if sample.Succeeded < sampleHits {
		found, err := q.CountSucceededAtEnds(ctx, queries.CountSucceededAtEndsParams{Examined: pageMost})
		return store.Count{N: found, AtLeast: true}, err
	}
	return store.Count{N: int64(float64(sample.Succeeded) * 100 / float64(percent)), Estimated: true}, nil
}

// sum adds two numbers of runs.
func sum(a, b store.Count) store.Count {
	return store.Count{N: a.N + b.N, Estimated: a.Estimated || b.Estimated}
}

// counted is a number that was counted up to a bound.
func counted(n, most int64) store.Count {
	return store.Count{N: min(n, most), Estimated: n > most}
}

// estimate returns roughly how many rows a table has, and at least as many as were counted.
func (r *Reader) estimate(ctx context.Context, table string, least int64) (int64, error) {
	q := r.db.Queries(r.db.Reading)
	row, err := q.EstimateRows(ctx, queries.EstimateRowsParams{SchemaName: r.db.Names.Schema, TableName: table})
	if err != nil || row.Estimate >= 0 {
		return max(row.Estimate, least), err
	}
	percent := percentOf(row.Pages)
	var n int64
	switch table {
	case "runs":
		var sample queries.SampleRunsRow
		sample, err = q.SampleRuns(ctx, queries.SampleRunsParams{Percent: percent})
		n = sample.Total
	case "ready":
		n, err = q.SampleReady(ctx, queries.SampleReadyParams{Percent: percent})
	case "waiting":
		n, err = q.SampleWaiting(ctx, queries.SampleWaitingParams{Percent: percent})
	default:
		return 0, fmt.Errorf("no sample of %s", table)
	}
	return max(int64(float64(n)*100/float64(percent)), least), err
}

// percentOf returns the percentage of a table of so many pages that a sample reads.
func percentOf(pages int64) float32 {
	return float32(min(100, 100*float64(samplePages)/float64(max(pages, 1))))
}

// estimateProblems shares what problems holds between its two states by a
// sample.
func (r *Reader) estimateProblems(ctx context.Context, dead, cancelled *store.Count) error {
	q := r.db.Queries(r.db.Reading)
	row, err := q.EstimateRows(ctx, queries.EstimateRowsParams{SchemaName: r.db.Names.Schema, TableName: "problems"})
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

// CountMatching counts the runs that match a filter, by state. It examines a bounded number of
// runs of each state, fewer if ctx ends within a second.
func (r *Reader) CountMatching(ctx context.Context, filter store.Filter) (map[store.State]store.Count, error) {
	filter.Before, filter.Limit = store.RunID{}, 0
	if _, _, _, err := filter.Range(); err != nil {
		return nil, err
	}
	if err := r.schema.Usable(ctx); err != nil {
		return nil, r.db.Fail("count runs", err)
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	counts, err := r.countMatching(ctx, filter)
	if err != nil {
		return nil, r.db.Fail("count runs", err)
	}
	return counts, nil
}

func (r *Reader) countMatching(ctx context.Context, filter store.Filter) (map[store.State]store.Count, error) {
	counts := map[store.State]store.Count{}
	for _, state := range filter.Wanted() {
		counts[state] = store.Count{}
	}
	l, err := r.lister(r.db.Reading, &filter)
	if err != nil {
		return nil, err
	}
	if err := l.readLanes(ctx); err != nil || len(l.lanes) == 0 {
		return counts, err
	}
	states := make([]int16, 0, len(counts))
	for state := range counts {
		states = append(states, int16(state))
	}
	most := countMostFor(ctx)
	if filter.Named() {
		return counts, l.countNamed(ctx, states, most, counts)
	}
	var rows []queries.CountMatchingRow
	b := r.db.Guarded(ctx)
	args := append([]any{states, l.lines(), conn.Small(most), l.below, l.from, l.allLanes, l.lanes, filter.Tag}, l.selected()...)
	b.Add(queries.CountMatching, args...).Query(func(found pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(found, pgx.RowToStructByPos[queries.CountMatchingRow])
		return err
	})
	if err := r.db.Send(ctx, r.db.Reading, b); err != nil {
		return nil, err
	}
	for _, row := range rows {
		counts[store.State(row.State)] = store.Count{N: row.Passing, AtLeast: row.Examined >= int64(most)}
	}
	return counts, nil
}

// countNamed counts runs whose ids are given, or that an index finds by their key,
// their schedule, their batch or a link: of these up to a bound.
func (l *lister) countNamed(ctx context.Context, states []int16, most int, counts map[store.State]store.Count) error {
	ids, more := conn.UUIDs(nil), false
	if len(l.filter.IDs) > 0 {
		ids = append(ids, l.filter.IDs...)
	} else {
		var err error
		if ids, err = l.idsOfName(ctx, most); err != nil {
			return err
		}
		more = len(ids) == most
	}
	var rows []queries.CountTheseRow
	b := l.reader.db.Guarded(ctx)
	args := append([]any{ids, l.below, l.from, states, l.allLanes, l.lanes, l.filter.Tag}, l.selected()...)
	b.Add(queries.CountThese, args...).Query(func(found pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(found, pgx.RowToStructByPos[queries.CountTheseRow])
		return err
	})
	if err := l.reader.db.Send(ctx, l.to, b); err != nil {
		return err
	}
	for state := range counts {
		counts[state] = store.Count{AtLeast: more}
	}
	for _, row := range rows {
		counts[store.State(row.State)] = store.Count{N: row.Passing, AtLeast: more}
	}
	return nil
}
