package durabletest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
)

type tenantArgs struct {
	Tenant string `json:"tenant"`
}

// TestTenantsTakeTurnsBelowTheCapOfAJob: with a backlog of six tenants that came one after another,
// each starts as often as the others, and a newcomer starts within a round.
func TestTenantsTakeTurnsBelowTheCapOfAJob(t *testing.T) {
	key := durable.KeyOf("{tenant}")
	for name, option := range map[string]durable.Option{
		"FairBy":            durable.FairBy(key),
		"a limit of each":   durable.Limited(durable.NewLimit("tenant", durable.Semaphore(2)), key),
		"one at a time":     durable.Limited(durable.NewLimit("account", durable.Mutex()), key),
		"a rate of each":    durable.Limited(durable.NewLimit("rate", durable.TokenBucket(600, time.Hour, 5)), key),
		"a window they all": durable.Limited(durable.NewLimit("shared", durable.DynamicWindow(600, time.Hour, 60, 2, 600)), key),
	} {
		t.Run(name, func(t *testing.T) {
			job := durable.NewJob[tenantArgs]("report", durable.MaxConcurrent(4), durable.Timeout(time.Hour), option)
			durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
				kit.Limits.Executions = 10_000
				var mu sync.Mutex
				starts := map[string]int{}
				kit.Worker(func(w *durable.Worker) {
					durable.Register(w, job, func(ctx context.Context, run *durable.Run[tenantArgs]) error {
						mu.Lock()
						starts[run.Args.Tenant]++
						mu.Unlock()
						select {
						case <-time.After(time.Minute):
						case <-ctx.Done():
						}
						return ctx.Err()
					})
				})
				kit.Advance(time.Second)
				enqueue := func(tenant string, n int) {
					runs := make([]durable.NewRun, n)
					for i := range runs {
						runs[i] = job.New(tenantArgs{tenant})
					}
					_, err := kit.Client.Enqueue(t.Context(), runs...)
					require.NoError(t, err)
				}
				for tenant := range 6 {
					enqueue(fmt.Sprint(tenant), 200)
					kit.Advance(time.Minute)
				}
				kit.Advance(5 * time.Minute)
				clear(starts)
				kit.Advance(time.Hour)
				for tenant := range 6 {
					require.InDelta(t, 40, starts[fmt.Sprint(tenant)], 4, "starts: %v", starts)
				}
				enqueue("new", 1)
				kit.Advance(3 * time.Minute)
				require.Equal(t, 1, starts["new"])
			})
		})
	}
}
