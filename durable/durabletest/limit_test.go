package durabletest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/store"
)

// The limits of runs are kept in virtual time: what a rate lets start is exact, and the
// test of it takes a few lines.
func TestLimitsInVirtualTime(t *testing.T) {
	tenant := durable.NewLimit("tenant", durable.Semaphore(2))
	api := durable.NewLimit("api", durable.FixedWindow(100, 24*time.Hour))
	drip := durable.NewLimit("drip", durable.TokenBucket(6, time.Minute, 1))
	t.Run("a rate", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			var starts []time.Duration
			began := time.Now()
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error {
				starts = append(starts, time.Since(began))
				return nil
			}, durable.Limited(drip)))
			for range 4 {
				_, err := mailJob(durable.Limited(drip)).Enqueue(t.Context(), kit.Client, mailArgs{To: "ada"})
				require.NoError(t, err)
			}
			require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.RunDue(), "the others are due, and wait for their limit")
			require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.Advance(10*time.Second))
			require.Equal(t, durabletest.Tally{Succeeded: 2}, kit.RunAll())
			for i, at := range starts {
				require.InDelta(t, time.Duration(i)*10*time.Second, at, float64(5*time.Millisecond), "start %d", i)
			}
		})
	})
	t.Run("days of a window", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return nil }, durable.Limited(api)))
			for range 250 {
				_, err := mailJob(durable.Limited(api)).Enqueue(t.Context(), kit.Client, mailArgs{To: "ada"})
				require.NoError(t, err)
			}
			require.Equal(t, durabletest.Tally{Succeeded: 100}, kit.Advance(23*time.Hour))
			require.Equal(t, durabletest.Tally{Succeeded: 100}, kit.Advance(24*time.Hour))
			require.Equal(t, durabletest.Tally{Succeeded: 50}, kit.RunAll())
		})
	})
	t.Run("places of a worker that is killed", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			byTenant := durable.Limited(tenant, durable.KeyOf("{to}"))
			work := handles(func(ctx context.Context, _ *durable.Run[mailArgs]) error {
				select {
				case <-time.After(time.Minute):
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}, byTenant)
			first := kit.Worker(work)
			for range 5 {
				_, err := mailJob(byTenant).Enqueue(t.Context(), kit.Client, mailArgs{To: "ada"})
				require.NoError(t, err)
			}
			kit.Advance(time.Second)
			first.Kill()
			kit.Worker(work)
			require.Equal(t, durabletest.Tally{}, kit.Advance(time.Minute), "its runs may still execute: their places are taken")
			require.Equal(t, durabletest.Tally{Succeeded: 5}, kit.RunAll())
			gate, err := kit.Store.Gate(t.Context(), "tenant", "ada")
			require.NoError(t, err)
			require.Zero(t, gate.InUse)
		})
	})
	t.Run("a limit that is drained hangs no test", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return nil }, durable.Limited(drip)))
			change := store.LimitChange{Command: store.DrainLimit, Limit: store.Limit{Name: "drip"}, By: "ann"}
			require.NoError(t, kit.Store.ChangeLimit(t.Context(), change))
			receipt, err := mailJob(durable.Limited(drip)).Enqueue(t.Context(), kit.Client, mailArgs{To: "ada"})
			require.NoError(t, err)
			require.Equal(t, durabletest.Tally{}, kit.RunAll())
			durabletest.RequireState(t, kit.Store, receipt.ID, durable.Pending)
			change.Command = store.ResumeLimit
			require.NoError(t, kit.Store.ChangeLimit(t.Context(), change))
			require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.RunAll())
		})
	})
	t.Run("a handler penalizes", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			byTenant := durable.Limited(tenant, durable.KeyOf("{to}"))
			var penalized atomic.Bool
			kit.Worker(handles(func(ctx context.Context, run *durable.Run[mailArgs]) error {
				if run.Args.To == "bob" || penalized.Swap(true) {
					return nil
				}
				if err := run.Penalize(ctx, tenant, time.Hour); err != nil {
					return err
				}
				return durable.RetryAfter(time.Hour, errBusy)
			}, byTenant))
			for _, to := range []string{"ada", "bob"} {
				_, err := mailJob(byTenant).Enqueue(t.Context(), kit.Client, mailArgs{To: to})
				require.NoError(t, err)
			}
			require.Equal(t, durabletest.Tally{Succeeded: 1, Failed: 1}, kit.RunDue())
			_, err := mailJob(byTenant).Enqueue(t.Context(), kit.Client, mailArgs{To: "ada"})
			require.NoError(t, err)
			require.Equal(t, durabletest.Tally{}, kit.Advance(59*time.Minute))
			require.Equal(t, durabletest.Tally{Succeeded: 2}, kit.Advance(2*time.Minute))
		})
	})
}

// A handler of a limited job is performed as any other, and may penalize its limit.
func TestPerformOfALimitedJob(t *testing.T) {
	tenant := durable.NewLimit("tenant", durable.Mutex())
	job := mailJob(durable.Limited(tenant, durable.KeyOf("{to}")), durable.MaxConcurrent(3))
	got := durabletest.Perform(t, job, func(ctx context.Context, run *durable.Run[mailArgs]) error {
		return run.Penalize(ctx, tenant, time.Hour)
	}, mailArgs{To: "ada"})
	require.NoError(t, got.Err)
	require.Equal(t, durable.Succeeded, got.Record.State)
	require.Equal(t, []string{"tenant=ada", "job:mail"}, got.Record.Limits)
}
