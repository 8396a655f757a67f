package durable

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// Allocations are counted over the whole process, so this test has it for itself.
func TestSeams_CostNothingWhereTheyAreNotUsed(t *testing.T) {
	ctx := context.Background()
	x := &execution{run: &store.ClaimedRun{}, laneWork: &laneWork{counts: observe.NewTally().Lane("default", "job")}, w: &Worker{}}
	x.call = func(context.Context, *execution) error { return nil }
	batch, verdicts, run := []ended{{x: x}}, []store.Verdict{store.Applied}, []NewRun{{}}
	allocations := func(pass Middleware) float64 {
		x.w.config.Middleware = nil
		if pass != nil {
			x.w.config.Middleware = []Middleware{pass, pass}
		}
		return testing.AllocsPerRun(1000, func() {
			if f := x.protect(ctx); f.err != nil {
				t.Error(f.err)
			}
			x.w.observeSettled(batch, verdicts)
			_, _, traced := observeEnqueue(ctx, nil, run)
			traced(nil)
		})
	}
	require.Zero(t, allocations(nil))
	require.LessOrEqual(t, allocations(func(ctx context.Context, _ RunInfo, next func(context.Context) error) error { return next(ctx) }), 2.0)
}
