package durabletest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func TestCompletingInTheKit(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	t.Run("the run ends with its effects, once its work succeeds", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			complete, sent := durabletest.Completing[*sql.Tx](kit.Store, nil), 0
			kit.Worker(handles(func(ctx context.Context, run *durable.Run[mailArgs]) error {
				return complete(ctx, run, func(*sql.Tx) error {
					if run.Attempt == 1 {
						return boom
					}
					sent++
					return nil
				})
			}))
			enqueue(t, kit)
			require.Equal(t, durabletest.Tally{Succeeded: 1, Failed: 1}, kit.RunAll())
			require.Equal(t, 1, sent)
		})
	})
	t.Run("a worker that has lost the run is refused", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			complete, taken, refused := durabletest.Completing(kit.Store, 7), make(chan struct{}), make(chan error, 1)
			first := kit.Worker(handles(func(ctx context.Context, run *durable.Run[mailArgs]) error {
				<-taken
				refused <- complete(context.WithoutCancel(ctx), run, func(tx int) error {
					require.Equal(t, 7, tx)
					return nil
				})
				return ctx.Err()
			}))
			id := enqueue(t, kit)
			kit.Advance(0)
			first.Pause()
			kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return nil }))
			kit.Advance(2 * durabletest.LeaseDuration)
			close(taken)
			require.ErrorIs(t, <-refused, lease.ErrLost)
			require.Equal(t, store.Succeeded, durabletest.RequireState(t, kit.Store, id, durable.Succeeded).State)
		})
	})
}
