package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// messages runs a test of two jobs: the handler of the one sends to the run of the other, which
// is not due.
func messages(t *testing.T, handler func(ctx context.Context, run *durable.Run[order], to durable.RunID) error, test func(t *testing.T, kit *durabletest.Kit, from, to durable.RunID)) {
	t.Helper()
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		to, err := notify.Enqueue(t.Context(), kit.Client, parcel{}, durable.After(365*day))
		require.NoError(t, err)
		kit.Worker(func(w *durable.Worker) {
			durable.Register(w, fulfil, func(ctx context.Context, run *durable.Run[order]) error { return handler(ctx, run, to.ID) })
		})
		from, err := fulfil.Enqueue(t.Context(), kit.Client, order{})
		require.NoError(t, err)
		test(t, kit, from.ID, to.ID)
	})
}

func inputsOf(t *testing.T, kit *durabletest.Kit, id durable.RunID) []store.Input {
	t.Helper()
	found, err := store.StepsOf(t.Context(), kit.Store, id)
	require.NoError(t, err)
	return found.Inputs
}

func TestRunSend_SendsOnceHoweverOftenTheHandlerIsExecuted(t *testing.T) {
	var receipts []store.SendReceipt
	messages(t, func(ctx context.Context, run *durable.Run[order], to durable.RunID) error {
		receipt, err := notify.Send(ctx, run, to, "paid", 7)
		if err != nil {
			return err
		}
		if receipts = append(receipts, receipt); len(receipts) < 3 {
			return errBoom
		}
		return nil
	}, func(t *testing.T, kit *durabletest.Kit, from, to durable.RunID) {
		for range 5 {
			kit.Advance(time.Minute)
		}
		require.Equal(t, durable.Succeeded, recordOf(t, kit, from).State)
		require.Equal(t, []store.SendReceipt{{Run: to}, {Run: to, Existing: true}, {Run: to, Existing: true}}, receipts)
		require.Len(t, inputsOf(t, kit, to), 1)
	})
}

func TestRunSend_SendsNothingAfterAPark(t *testing.T) {
	var park, sent error
	messages(t, func(ctx context.Context, run *durable.Run[order], to durable.RunID) error {
		park = run.Sleep(ctx, "a day", day)
		_, sent = notify.Send(ctx, run, to, "paid", 7)
		return park
	}, func(t *testing.T, kit *durabletest.Kit, _, to durable.RunID) {
		kit.RunDue()
		require.Error(t, park)
		require.Equal(t, park, sent)
		require.Empty(t, inputsOf(t, kit, to))
		kit.Advance(day)
		require.NoError(t, sent)
		require.Len(t, inputsOf(t, kit, to), 1)
	})
}

func TestRunSend_SendsNothingWhenTheHandlerHasReturned(t *testing.T) {
	var left *durable.Run[order]
	messages(t, func(_ context.Context, run *durable.Run[order], _ durable.RunID) error {
		left = run
		return nil
	}, func(t *testing.T, kit *durabletest.Kit, _, to durable.RunID) {
		kit.RunDue()
		_, err := notify.Send(t.Context(), left, to, "paid", 7)
		require.ErrorIs(t, err, lease.ErrLost)
		require.Empty(t, inputsOf(t, kit, to))
	})
}
