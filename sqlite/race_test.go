package sqlite_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/sqlite"
)

func TestTwoStoresOnOneFile(t *testing.T) {
	first, path := openMigrated(t)
	second := open(t, path, sqlite.Config{})
	const n = 2000
	_, err := first.Enqueue(t.Context(), newRuns(n)...)
	require.NoError(t, err)
	var mu sync.Mutex
	claimed := make(map[durable.RunID]int)
	var wg sync.WaitGroup
	for i := range 8 {
		s := []*sqlite.Store{first, second}[i%2]
		wg.Go(func() {
			for {
				request := durable.ClaimRequest{
					Claim: lease.NewClaimID(), Worker: worker(), Duration: time.Minute, Limit: 7,
					Steps: []durable.Step{{Lane: 1, Take: 5}, {Lane: 1, Skip: 5, Take: 2}},
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
					if verdict != durable.Accepted {
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
	require.EqualValues(t, n, counts[durable.Succeeded])
	require.Zero(t, counts[durable.Pending]+counts[durable.Running])
}
