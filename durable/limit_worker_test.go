package durable_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store/memory"
)

// TestWorkersKeepLimits has several workers execute runs of two jobs under a limit for
// each tenant, beside runs that are not limited.
func TestWorkersKeepLimits(t *testing.T) {
	const tenants, each, most, free = 5, 40, 3, 100
	db := memory.New(memory.Config{})
	tenant := durable.NewLimit("tenant", durable.Semaphore(most))
	all := durable.NewLimit("all", durable.Semaphore(8))
	byTenant := durable.Limited(tenant, durable.KeyFrom(tenantOf))
	first := durable.NewJob[syncArgs]("first", byTenant)
	second := durable.NewJob[syncArgs]("second", byTenant, durable.Limited(all), durable.Priority(1))
	plain := durable.NewJob[syncArgs]("plain")
	var mu sync.Mutex
	executing, highest := map[string]int{}, map[string]int{}
	var done atomic.Int64
	enter := func(key string, by int) {
		mu.Lock()
		defer mu.Unlock()
		executing[key] += by
		highest[key] = max(highest[key], executing[key])
	}
	handle := func(_ context.Context, run *durable.Run[syncArgs]) error {
		keys := []string{run.Args.Tenant}
		if run.Job == "second" {
			keys = append(keys, "all")
		}
		for _, key := range keys {
			enter(key, 1)
		}
		for range 100 { // so that others would overlap
			runtime.Gosched()
		}
		for _, key := range keys {
			enter(key, -1)
		}
		done.Add(1)
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for i := range 3 {
		w := durable.NewWorker(db, durable.WorkerConfig{Name: fmt.Sprint("w", i), Process: new(durable.Process)})
		durable.Register(w, first, handle)
		durable.Register(w, second, handle)
		durable.Register(w, plain, func(context.Context, *durable.Run[syncArgs]) error { done.Add(1); return nil })
		workers.Go(func() { _ = w.Run(ctx) })
	}
	defer workers.Wait()
	defer cancel()
	client := durable.NewClient(db)
	require.Eventually(t, func() bool {
		_, err := second.Enqueue(ctx, client, syncArgs{Tenant: "0"})
		return err == nil
	}, 10*time.Second, time.Millisecond, "the limits are declared")
	for i := range tenants * each {
		job := first
		if i%2 == 0 {
			job = second
		}
		_, err := job.Enqueue(ctx, client, syncArgs{Tenant: fmt.Sprint(i % tenants)})
		require.NoError(t, err)
	}
	for range free {
		_, err := plain.Enqueue(ctx, client, syncArgs{})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return done.Load() == tenants*each+free+1 }, 30*time.Second, 5*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	for key, n := range highest {
		if key == "all" {
			require.LessOrEqual(t, n, 8)
		} else {
			require.LessOrEqual(t, n, most, "tenant %s", key)
			require.Greater(t, n, 1, "tenant %s: the places are used", key)
		}
	}
}
