package sqlite_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func TestTwoStoresOnOneFile(t *testing.T) {
	first, path := openMigrated(t)
	second := open(t, path, sqlite.Config{})
	const n = 1000
	_, err := first.Enqueue(t.Context(), newRuns(n)...)
	require.NoError(t, err)
	var mu sync.Mutex
	claimed := make(map[store.RunID]int)
	var wg sync.WaitGroup
	for i := range 8 {
		s := []*sqlite.Store{first, second}[i%2]
		wg.Go(func() {
			for {
				request := store.ClaimRequest{
					Claim: lease.NewClaimID(), Worker: worker(), Duration: time.Minute, Limit: 7,
					Steps: []store.Step{{Lane: 1, Take: 5}, {Lane: 1, Skip: 5, Take: 2}},
				}
				runs, err := s.Claim(context.Background(), request)
				if err != nil {
					t.Error(err)
					return
				}
				if len(runs) == 0 {
					return
				}
				mu.Lock()
				for _, run := range runs {
					claimed[run.ID]++
				}
				mu.Unlock()
				verdicts, err := s.Settle(context.Background(), succeed(request.Claim, runs))
				if err != nil {
					t.Error(err)
					return
				}
				for _, verdict := range verdicts {
					if verdict != store.Applied {
						t.Errorf("verdict %d", verdict)
					}
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, claimed, n)
	for id, times := range claimed {
		require.Equal(t, 1, times, id)
	}
	counts, err := second.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, n, counts[store.Succeeded].N)
	require.Zero(t, counts[store.Pending].N+counts[store.Running].N)
}

func TestEnqueuesShareATransaction(t *testing.T) {
	s, _ := openMigrated(t)
	var wg sync.WaitGroup
	var stored, gaveUp atomic.Int64
	for i := range 64 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			for k := range 20 {
				if (i+k)%5 == 0 { // leaders and followers give up at any moment
					time.AfterFunc(time.Duration(i*k)*time.Microsecond, cancel)
				}
				runs := newRuns(2)
				receipts, err := s.Enqueue(ctx, runs...)
				if errors.Is(err, context.Canceled) {
					gaveUp.Add(1)
					return
				}
				if err != nil || len(receipts) != 2 || receipts[1].ID != runs[1].ID || receipts[0].Existing {
					t.Errorf("%v, %v", receipts, err)
					return
				}
				stored.Add(2)
			}
		})
	}
	wg.Wait()
	counts, err := s.Counts(t.Context())
	require.NoError(t, err)
	t.Logf("%d stored, %d gave up", stored.Load(), gaveUp.Load())
	require.GreaterOrEqual(t, counts[store.Pending].N, stored.Load())
	require.LessOrEqual(t, counts[store.Pending].N, stored.Load()+2*gaveUp.Load(), "one who gave up may have stored its two runs")
	require.Zero(t, counts[store.Pending].N%2, "all or none")
}
