package operate_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// leisurely is a store that takes its time to count.
type leisurely struct {
	store.Store
	takes    time.Duration
	matching int // how often it was asked for runs that match
}

func (s *leisurely) Counts(ctx context.Context) (map[store.State]store.Count, error) {
	select {
	case <-time.After(s.takes):
		return s.Store.Counts(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *leisurely) CountMatching(ctx context.Context, filter store.Filter) (map[store.State]store.Count, error) {
	s.matching++
	return s.Store.CountMatching(ctx, filter)
}

func TestMatching_OfALargeStoreIsNotCountedAgain(t *testing.T) {
	t.Parallel()
	db := &leisurely{Store: memory.New(memory.Config{})}
	o := operate.New(db, operate.Config{})
	defer o.Close()
	enqueue := func() {
		_, err := o.Enqueue(t.Context(), durable.NewJob[string]("mail").New("x"))
		require.NoError(t, err)
	}
	matching := func(filter store.Filter) store.Count {
		count, known := o.Matching(t.Context(), store.CancelRuns, filter)
		require.True(t, known)
		return count
	}
	now := store.Filter{Until: time.Now().Add(time.Second)}
	enqueue()
	o.LastCounts(t.Context())
	enqueue()
	require.Equal(t, store.Count{N: 2}, matching(now), "a small one is counted each time")
	require.Equal(t, 1, db.matching)

	db.takes = 60 * time.Millisecond // longer than is waited for
	o = operate.New(db, operate.Config{})
	defer o.Close()
	require.Eventually(t, func() bool { return o.LastCounts(t.Context()).Counts != nil }, 10*time.Second, time.Millisecond)
	enqueue()
	require.Equal(t, store.Count{N: 2, Estimated: true}, matching(now), "as they were counted last")
	require.Equal(t, 1, db.matching)
	require.Equal(t, store.Count{N: 3}, matching(store.Filter{Jobs: []string{"mail"}}), "what is narrowed is counted")
	require.Zero(t, matching(store.Filter{Until: time.Now().Add(-time.Hour)}))
	require.Equal(t, 3, db.matching)
	_, known := o.Matching(t.Context(), store.CancelRuns, store.Filter{Before: store.NewRunID()})
	require.False(t, known)
}
