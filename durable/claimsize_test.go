package durable_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// sizesStore remembers how large claims were.
type sizesStore struct {
	durable.Store
	largest, total atomic.Int64 // bytes of args of one claim; of all
}

func (s *sizesStore) Claim(ctx context.Context, request store.ClaimRequest) ([]store.ClaimedRun, error) {
	runs, err := s.Store.Claim(ctx, request)
	var bytes int64
	for i := range runs {
		bytes += int64(len(runs[i].Args))
	}
	s.total.Add(bytes)
	s.largest.Store(max(s.largest.Load(), bytes))
	return runs, err
}

func TestClaim_LoadsNoMoreThanItMay(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		sized := &sizesStore{Store: s.store.Store}
		s.store.Store = sized
		const most = 4 << 20
		w := s.worker(durable.WorkerConfig{MaxConcurrentRuns: 1000, ClaimBatchBytes: most})
		job := durable.NewJob[string]("large")
		var done atomic.Int32
		durable.Register(w, job, func(context.Context, *durable.Run[string]) error { done.Add(1); return nil })
		const n, size = 150, 200 << 10
		client := durable.NewClient(sized)
		for range n {
			_, err := job.Enqueue(t.Context(), client, strings.Repeat("x", size))
			require.NoError(t, err)
		}
		stop := s.begin(w)
		s.pass(time.Minute)
		require.Equal(t, int32(n), done.Load())
		require.Equal(t, int64(n*(size+2)), sized.total.Load())
		require.LessOrEqual(t, sized.largest.Load(), int64(most))
		require.Greater(t, sized.largest.Load(), int64(most/2), "it asks for as many as it may")
		require.NoError(t, stop())
	})
}
