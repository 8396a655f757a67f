package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/durable-worker/durable-worker/store"
)

const (
	// countWhole is how far runs are counted one by one.
	countWhole = 1_000_000
	// sampled is how many runs an estimate examines.
	sampled = 2000
	// sampleHits is how many runs of a state a sample has to have for an estimate
	// to follow from it.
	sampleHits = 40
)

// Counts returns the number of runs in each state: exact up to a million of each.
// A larger one is estimated from a sample of the runs, evenly over the order in
// which they were stored. So are the succeeded runs among more than a million in
// all, which no index knows; where the sample has few of them, their number is
// that found among the newest and the oldest runs, a lower bound.
func (s *Store) Counts(ctx context.Context) (map[store.State]store.Count, error) {
	reader, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("counts: %w", s.explain(err))
	}
	counts, err := reader.counts(ctx)
	if err != nil {
		return nil, fmt.Errorf("counts: %w", s.explain(err))
	}
	return counts, nil
}

func (l *lookups) counts(ctx context.Context) (map[store.State]store.Count, error) {
	var all, span, pending, running, dead, cancelled int64
	if err := l.count.QueryRowContext(ctx, countWhole+1).Scan(&all, &span, &pending, &running, &dead, &cancelled); err != nil {
		return nil, err
	}
	var stranded int64
	if err := l.stranded.QueryRowContext(ctx, countMost).Scan(&stranded); err != nil {
		return nil, err
	}
	running += stranded
	if all <= countWhole {
		// One statement has counted all runs and those of every other state.
		return map[store.State]store.Count{
			store.Pending: {N: pending}, store.Running: {N: running}, store.Dead: {N: dead}, store.Cancelled: {N: cancelled},
			store.Succeeded: {N: max(all-pending-running-dead-cancelled, 0)},
		}, nil
	}
	var isPending, isSucceeded, isDead, isCancelled, found int64
	if err := l.sample.QueryRowContext(ctx, sampled).Scan(&isPending, &isSucceeded, &isDead, &isCancelled); err != nil {
		return nil, err
	}
	if err := l.succeeded.QueryRowContext(ctx, pageMost).Scan(&found); err != nil {
		return nil, err
	}
	succeeded := store.Count{N: found, AtLeast: true}
	if isSucceeded >= sampleHits {
		succeeded = store.Count{N: max(span*isSucceeded/sampled, found), Estimated: true}
	}
	return map[store.State]store.Count{
		store.Pending: counted(pending, span*isPending/sampled), store.Running: {N: running},
		store.Dead: counted(dead, span*isDead/sampled), store.Cancelled: counted(cancelled, span*isCancelled/sampled),
		store.Succeeded: succeeded,
	}, nil
}

// counted is a number that was counted up to the bound, or what it is about.
func counted(n, about int64) store.Count {
	if n <= countWhole {
		return store.Count{N: n}
	}
	return store.Count{N: max(about, countWhole), Estimated: true}
}

// counting are the statements that count, by name.
func (l *lookups) counting() map[string]**sql.Stmt {
	return map[string]**sql.Stmt{
		"CountRuns": &l.count, "CountMatching": &l.matching, "CountThese": &l.these, "SampleRuns": &l.sample,
		"CountSucceededAtEnds": &l.succeeded, "CountStranded": &l.stranded, "CheckLimits": &l.limits,
	}
}

// CountMatching counts the runs that pass a filter, by state.
func (s *Store) CountMatching(ctx context.Context, filter store.Filter) (map[store.State]store.Count, error) {
	filter.Before, filter.Limit = store.RunID{}, 0
	if _, _, _, err := filter.Range(); err != nil {
		return nil, err
	}
	reader, err := s.read(ctx)
	var counts map[store.State]store.Count
	if err == nil {
		counts, err = reader.countMatching(ctx, s.clock.now(), filter)
	}
	if err != nil {
		return nil, fmt.Errorf("count runs: %w", s.explain(err))
	}
	return counts, nil
}

func (l *lookups) countMatching(ctx context.Context, now int64, filter store.Filter) (map[store.State]store.Count, error) {
	from, below, _, err := filter.Range()
	if err != nil {
		return nil, err
	}
	counts := map[store.State]store.Count{}
	for _, state := range filter.Wanted() {
		counts[state] = store.Count{}
	}
	if filter.Named() {
		return counts, l.countNamed(ctx, now, &filter, counts)
	}
	rows, err := l.matching.QueryContext(ctx, countMost, from[:], below[:], list(numbers(filter.Wanted())), list(filter.Jobs), list(filter.Queues),
		filter.Tag, choiceOf(&filter))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var state store.State
		var looked, passing int64
		if err := rows.Scan(&state, &looked, &passing); err != nil {
			return nil, err
		}
		counts[state] = store.Count{N: passing, AtLeast: looked >= countMost}
	}
	return counts, rows.Err()
}

// countNamed counts runs whose ids are given, or that an index finds by their key,
// their schedule, their batch or a link.
func (l *lookups) countNamed(ctx context.Context, now int64, filter *store.Filter, counts map[store.State]store.Count) error {
	from, below, _, err := filter.Range()
	if err != nil {
		return err
	}
	ids, more := slices.Clone(filter.IDs), false
	slices.SortFunc(ids, func(a, b store.RunID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids) // the statement counts a run as often as it is named
	if len(ids) == 0 {
		if ids, err = idsOfName(ctx, l.Queries, now, filter, countMost); err != nil {
			return err
		}
		more = len(ids) == countMost
	}
	rows, err := l.these.QueryContext(ctx, list(inHex(ids)), from[:], below[:], list(numbers(filter.Wanted())), list(filter.Jobs), list(filter.Queues),
		filter.Tag, choiceOf(filter))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for state := range counts {
		counts[state] = store.Count{AtLeast: more}
	}
	for rows.Next() {
		var state store.State
		var passing int64
		if err := rows.Scan(&state, &passing); err != nil {
			return err
		}
		counts[state] = store.Count{N: passing, AtLeast: more}
	}
	return rows.Err()
}
