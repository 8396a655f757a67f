package durabletest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func TestKitWithTransactions(t *testing.T) {
	t.Run("what a transaction has enqueued is seen in it before it commits", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			tx := kit.Store.Begin()
			receipt, err := mailJob().Enqueue(t.Context(), tx, mailArgs{To: "bob"})
			require.NoError(t, err)
			durabletest.RequireEnqueued(t, tx, mailJob(), toBob)
			durabletest.RequireState(t, tx, receipt.ID, durable.Pending)
			durabletest.RequireNotEnqueued(t, kit.Store, mailJob())
			require.NoError(t, tx.Commit())
			durabletest.RequireEnqueued(t, kit.Store, mailJob(), toBob)
		})
	})
	t.Run("so on SQLite", func(t *testing.T) {
		t.Parallel()
		store, err := sqlite.Open(t.Context(), t.TempDir()+"/durable.db", sqlite.Config{})
		require.NoError(t, err)
		t.Cleanup(store.Close)
		_, err = store.Migrate(t.Context())
		require.NoError(t, err)
		db, err := sql.Open("sqlite", store.DSN())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		bound := store.WithTx(tx)
		_, err = mailJob().Enqueue(t.Context(), bound, mailArgs{To: "bob"})
		require.NoError(t, err)
		durabletest.RequireEnqueued(t, bound, mailJob(), toBob)
		durabletest.RequireNotEnqueued(t, store, mailJob())
		require.NoError(t, tx.Rollback())
		durabletest.RequireNotEnqueued(t, store, mailJob())
	})
	t.Run("a run that its handler has completed counts as succeeded", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			kit.Worker(handles(func(ctx context.Context, run *durable.Run[mailArgs]) error {
				tx := kit.Store.Begin()
				if err := run.CompleteIn(ctx, tx); err != nil {
					return err
				}
				return tx.Commit()
			}))
			enqueue(t, kit)
			require.Equal(t, durabletest.Tally{Succeeded: 1}, kit.RunDue())
		})
	})
	t.Run("what is enqueued through the run is among what Perform tells", func(t *testing.T) {
		t.Parallel()
		db := memory.New(memory.Config{})
		got := durabletest.PerformOn(t, db, mailJob(), func(ctx context.Context, run *durable.Run[mailArgs]) error {
			if _, err := mailJob().Enqueue(ctx, run, mailArgs{To: "bob"}); err != nil {
				return err
			}
			tx := db.Begin()
			if err := run.CompleteIn(ctx, tx); err != nil {
				return err
			}
			return tx.Commit()
		}, mailArgs{To: "ada"})
		require.Equal(t, store.Success, got.Outcome.Kind)
		require.Len(t, got.Enqueued, 1)
	})
	t.Run("a worker that is cut off enqueues nothing through its run", func(t *testing.T) {
		t.Parallel()
		durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
			other := durable.NewJob[int]("count")
			w := kit.Worker(handles(func(ctx context.Context, run *durable.Run[mailArgs]) error {
				<-ctx.Done()
				_, err := other.Enqueue(context.WithoutCancel(ctx), run, 1)
				return err
			}))
			enqueue(t, kit)
			kit.Advance(0)
			w.Kill()
			kit.Advance(2 * durabletest.LeaseDuration)
			durabletest.RequireNotEnqueued(t, kit.Store, other)
		})
	})
}
