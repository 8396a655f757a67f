package sqlite_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// swing does everything to the same runs until the time is over.
func swing(t *testing.T, s *sqlite.Store, i int, runs []store.NewRun, until time.Time) {
	ctx := context.Background()
	outcomes := []store.Outcome{{Kind: store.Failure, Error: "bad"}, {Kind: store.Death, Error: "dead"}, {Kind: store.HandedBack}}
	for time.Now().Before(until) {
		ids := []store.RunID{runs[rand.IntN(len(runs))].ID, runs[rand.IntN(len(runs))].ID}
		var err error
		switch i % 8 {
		case 0, 1:
			_, err = s.Operate(ctx, store.RunCommand{Action: store.CancelRuns, Runs: ids, By: "hammer"})
		case 2, 3:
			_, err = s.Operate(ctx, store.RunCommand{Action: store.RetryRuns, Runs: ids, By: "hammer"})
		case 4:
			_, err = s.Reclaim(ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
		default:
			request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: worker(), Duration: 10 * time.Millisecond, Limit: 5,
				Steps: []store.Step{{Lane: 1, Take: 5}}}
			var claimed []store.ClaimedRun
			if claimed, err = s.Claim(ctx, request); err == nil && rand.IntN(3) > 0 {
				settlements := succeed(request.Claim, claimed)
				for n := range settlements[0].Runs {
					settlements[0].Runs[n].Outcome = outcomes[rand.IntN(len(outcomes))]
				}
				_, err = s.Settle(ctx, settlements)
			}
		}
		if err != nil {
			t.Errorf("goroutine %d: %v", i, err)
			return
		}
	}
}

func TestOperatorsBesideWorkers(t *testing.T) {
	first, path := openMigrated(t)
	stores := []*sqlite.Store{first, open(t, path, sqlite.Config{})}
	runs := newRuns(40)
	_, err := first.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	until := time.Now().Add(2 * time.Second)
	var swinging sync.WaitGroup
	for i := range 64 {
		swinging.Go(func() { swing(t, stores[i/8%2], i, runs, until) })
	}
	swinging.Wait()
	order := store.RunCommand{Action: store.CancelRuns, By: "last"}
	for i := range runs {
		order.Runs = append(order.Runs, runs[i].ID)
	}
	_, err = first.Operate(t.Context(), order)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := first.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 1000})
		require.NoError(t, err)
		counts, err := first.Counts(t.Context())
		require.NoError(t, err)
		require.Zero(t, counts[store.Pending].N, "a run that is to be cancelled is never pending again")
		return counts[store.Running].N == 0
	}, time.Minute, 10*time.Millisecond)
	counts, err := first.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, len(runs), counts[store.Dead].N+counts[store.Cancelled].N, fmt.Sprint(counts))
	integrity(t, path)
}
