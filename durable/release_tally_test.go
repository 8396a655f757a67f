package durable_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/observe"
)

// The input comes while its run is executing, so the worker releases the run when it has put it back,
// and counts that: the metric durable_released_total.
func TestRelease_IsCountedAndTimed(t *testing.T) {
	tally := observe.NewTally()
	var mu sync.Mutex
	calls := map[string][]observe.StoreCall{}
	hooks := observe.Hooks{StoreCalled: func(call observe.StoreCall) {
		mu.Lock()
		defer mu.Unlock()
		calls[call.Verb] = append(calls[call.Verb], call)
	}}
	executions := 0
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(func(w *durable.Worker) {
			durable.Register(w, fulfil, func(ctx context.Context, run *durable.Run[order]) error {
				if _, err := durable.Step(ctx, run, "charge", new(counted).do(1, nil)); err != nil {
					return err
				}
				_, received := durable.Receive[string](ctx, run, "approved", 0)
				if executions++; executions == 1 {
					_, err := fulfil.Send(t.Context(), kit.Client, run.ID, "approved", "eva")
					require.NoError(t, err)
				}
				return received
			})
		}, func(c *durable.WorkerConfig) { c.Tally, c.Hooks = tally, hooks })
		_, err := fulfil.Enqueue(t.Context(), kit.Client, order{})
		require.NoError(t, err)
		kit.RunDue()
		kit.Advance(time.Second)
		require.Equal(t, 2, executions)
		require.EqualValues(t, 1, tally.Totals().Released)
	})
	mu.Lock()
	defer mu.Unlock()
	released := 0
	for _, call := range calls["release"] {
		released += call.Runs
	}
	require.Equal(t, 1, released)
	require.Len(t, calls["record steps"], 1)
	require.Equal(t, 1, calls["record steps"][0].Runs)
}
