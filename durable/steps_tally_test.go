package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// Each execution of a step is counted once, by what became of it, and none of a step that is
// found recorded.
func TestStep_IsCountedByItsResult(t *testing.T) {
	tally := observe.NewTally()
	var fails counted
	handler := func(ctx context.Context, run *durable.Run[order]) error {
		_, err := durable.Step(ctx, run, "charge", fails.do(1, nil))
		if err != nil {
			return err
		}
		if _, err := durable.Step(ctx, run, "unlucky", fails.do(0, errBoom), durable.StepAttempts(2, durable.Fixed(time.Minute))); !durable.Final(err) {
			return err
		}
		if run.Attempt == 1 {
			_, err := durable.Step(ctx, run, "fragile", fails.do(0, errBoom))
			return err
		}
		_, err = durable.Receive[int](ctx, run, "approved", 0)
		return err
	}
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(func(w *durable.Worker) { durable.Register(w, fulfil, handler) }, func(c *durable.WorkerConfig) { c.Tally = tally })
		receipt, err := fulfil.Enqueue(t.Context(), kit.Client, order{Total: 7})
		require.NoError(t, err)
		kit.RunDue()
		kit.Advance(time.Minute)
		kit.RunDue()
		kit.Advance(time.Minute)
		kit.RunDue()
		want := map[observe.StepResult]int64{observe.StepDone: 1, observe.StepTried: 1, observe.StepFailed: 1, observe.StepError: 1}
		totals := tally.Totals()
		require.Len(t, totals.Lanes, 1)
		require.Equal(t, want, totals.Lanes[0].Steps)
		require.EqualValues(t, fails.n.Load(), 4)
		written := int64(0)
		for _, n := range totals.StepWrites.Counts {
			written += n
		}
		require.EqualValues(t, 3, written, "what was recorded")
		require.Equal(t, store.Pending, recordOf(t, kit, receipt.ID).State)
	})
}
