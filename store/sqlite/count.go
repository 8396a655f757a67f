package sqlite

import (
	"context"
	"fmt"

	"github.com/durable-worker/durable-worker/store"
)

// sampled is how many runs an estimate looks at.
const sampled = 2000

// Counts returns the number of runs in each state: exact up to a hundred thousand
// of each. A larger one, and the succeeded runs among more than a hundred thousand
// in all, are estimated from a sample of the runs, evenly over the order in which
// they were stored.
func (s *Store) Counts(ctx context.Context) (map[store.State]store.Count, error) {
	look, err := s.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("counts: %w", s.explain(err))
	}
	counts, err := look.counts(ctx)
	if err != nil {
		return nil, fmt.Errorf("counts: %w", s.explain(err))
	}
	return counts, nil
}

func (l *lookups) counts(ctx context.Context) (map[store.State]store.Count, error) {
	var all, span, pending, running, dead, cancelled int64
	if err := l.count.QueryRowContext(ctx, countMost+1).Scan(&all, &span, &pending, &running, &dead, &cancelled); err != nil {
		return nil, err
	}
	var stranded int64
	if err := l.stranded.QueryRowContext(ctx, countMost).Scan(&stranded); err != nil {
		return nil, err
	}
	running += stranded
	var found, isPending, isSucceeded, isDead, isCancelled int64
	if all > countMost {
		if err := l.sample.QueryRowContext(ctx, sampled).Scan(&found, &isPending, &isSucceeded, &isDead, &isCancelled); err != nil {
			return nil, err
		}
	}
	counts := map[store.State]store.Count{
		store.Pending: counted(pending, span*isPending/sampled), store.Running: counted(running, running),
		store.Dead: counted(dead, span*isDead/sampled), store.Cancelled: counted(cancelled, span*isCancelled/sampled),
	}
	succeeded := store.Count{N: all, Estimated: all > countMost}
	if succeeded.Estimated {
		succeeded.N = span * found / sampled // of all; mostly none has been deleted from between
	}
	for _, c := range counts {
		if c.Estimated {
			succeeded.N = span * isSucceeded / sampled
			break
		}
		succeeded.N -= c.N
	}
	succeeded.N = max(succeeded.N, 0)
	counts[store.Succeeded] = succeeded
	return counts, nil
}

// counted is a number that was counted up to the bound, or what it is about.
func counted(n, about int64) store.Count {
	if n <= countMost {
		return store.Count{N: n}
	}
	return store.Count{N: max(about, countMost), Estimated: true}
}
