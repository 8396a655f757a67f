package durabletest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/store"
)

func TestRequireWaiting(t *testing.T) {
	t.Run("a run waits in its sleep, then for its input, until it is sent", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Worker(handles((&parcel{}).handle))
			id := enqueue(t, kit)
			kit.RunDue()
			began := time.Now()
			slept := durabletest.RequireWaiting(t, kit.Store, id, "three days")
			require.Equal(t, store.StepSleep, slept.Kind)
			require.WithinDuration(t, began.Add(72*time.Hour), slept.Until, time.Second)
			said := fails(t, func(tb testing.TB) { durabletest.RequireWaiting(tb, kit.Store, id, "approved") })
			require.Contains(t, said, `a run does not wait in "approved", it waits in the sleep "three days" until 2000-01-04T`)

			kit.Advance(72 * time.Hour)
			require.Equal(t, store.StepInput, durabletest.RequireWaiting(t, kit.Store, id, "approved").Kind)
			said = fails(t, func(tb testing.TB) { durabletest.RequireWaiting(tb, kit.Store, id, "three days") })
			require.Contains(t, said, `it waits for the input "approved" until 2000-01-11T`)

			_, err := mailJob().Send(t.Context(), kit.Client, id, "approved", "eva")
			require.NoError(t, err)
			require.Equal(t, 1, kit.RunDue().Succeeded)
			said = fails(t, func(tb testing.TB) { durabletest.RequireWaiting(tb, kit.Store, id, "approved") })
			require.Contains(t, said, "a run is succeeded, want pending")
		})
	})
	t.Run("a run that is due, or retried later, waits in no step", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			id := enqueue(t, kit)
			said := fails(t, func(tb testing.TB) { durabletest.RequireWaiting(tb, kit.Store, id, "approved") })
			require.Contains(t, said, `a run does not wait in "approved", it is due`)
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return errBusy }))
			kit.RunDue()
			said = fails(t, func(tb testing.TB) { durabletest.RequireWaiting(tb, kit.Store, id, "approved") })
			require.Contains(t, said, `it waits in no step`)
		})
	})
	t.Run("an input that is sent while the handler executes is received in the same call", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Worker(handles(func(ctx context.Context, run *durable.Run[mailArgs]) error {
				_, err := durable.Step(ctx, run, "slow", func(context.Context) (int, error) {
					time.Sleep(time.Minute) //nolint:forbidigo // virtual time: the handler works
					return 1, nil
				})
				if err != nil {
					return err
				}
				_, err = durable.Receive[string](ctx, run, "approved", 0)
				return err
			}))
			id := enqueue(t, kit)
			kit.Advance(30 * time.Second)
			_, err := mailJob().Send(t.Context(), kit.Client, id, "approved", "eva")
			require.NoError(t, err)
			require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.RunDue())
		})
	})
}
