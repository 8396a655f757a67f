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

func TestRequireBatch_SaysWhatABatchIsInstead(t *testing.T) {
	t.Parallel()
	durabletest.Run(t, func(t *testing.T, kit *durabletest.Kit) {
		kit.Worker(handles(func(context.Context, *durable.Run[mailArgs]) error { return nil }))
		batch := store.NewBatch{ID: store.NewRunID(), Name: "pages"}
		runs := []store.NewRun{mailJob().New(mailArgs{}), mailJob().New(mailArgs{}, durable.After(time.Hour))}
		for i := range runs {
			runs[i].Batch = &batch
		}
		_, err := kit.Client.Enqueue(t.Context(), runs...)
		require.NoError(t, err)
		kit.RunDue()
		durabletest.RequireBatch(t, kit.Store, batch.ID, store.BatchRunning, store.BatchCounts{Members: 2, Succeeded: 1})
		said := fails(t, func(tb testing.TB) {
			durabletest.RequireBatch(tb, kit.Store, batch.ID, store.BatchSucceeded, store.BatchCounts{Members: 2, Succeeded: 2})
		})
		require.Contains(t, said, "a batch is running with 2 members, 1 succeeded, 0 dead, 0 cancelled, want succeeded with 2 members, 2 succeeded")
		said = fails(t, func(tb testing.TB) {
			durabletest.RequireBatch(tb, kit.Store, store.NewRunID(), store.BatchRunning, store.BatchCounts{})
		})
		require.Contains(t, said, "not found")
		kit.Advance(time.Hour)
		kit.RunDue()
		ended := durabletest.RequireBatch(t, kit.Store, batch.ID, store.BatchSucceeded, store.BatchCounts{Members: 2, Succeeded: 2})
		require.NotNil(t, ended.EndedAt)
	})
}
