package operate_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

func TestARetryWithDependentsBringsBackWhatTheFailureHasCancelled(t *testing.T) {
	t.Parallel()
	db := memory.New(memory.Config{})
	client, job := durable.NewClient(db), durable.NewJob[int]("link")
	ann := operate.New(db, operate.Config{}).As("ann")
	after := func(id durable.RunID) store.NewRun { return job.New(0, durable.DependsOn(durable.OnSuccess(id))) }
	source := job.New(0)
	first, byHand := after(source.ID), after(source.ID)
	second := after(first.ID)
	runs := []store.NewRun{source, first, byHand, second}
	for range store.MaxSources { // more than one call retries
		runs = append(runs, after(second.ID))
	}
	_, err := client.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	_, err = ann.Cancel(t.Context(), "wrong day", byHand.ID)
	require.NoError(t, err)
	_, err = ann.Cancel(t.Context(), "", source.ID)
	require.NoError(t, err)
	for range 3 {
		_, err = db.Release(t.Context(), store.ReleaseRequest{Limit: 1000})
		require.NoError(t, err)
	}

	retried, err := ann.RetryWithDependents(t.Context(), "fixed", source.ID)
	require.NoError(t, err)
	require.Len(t, retried.Runs, store.MaxCommandRuns)
	require.Equal(t, []store.RunID{source.ID, first.ID, second.ID}, []store.RunID{retried.Runs[0].ID, retried.Runs[1].ID, retried.Runs[2].ID})
	require.Equal(t, store.Count{N: 3}, retried.Left)
	text, err := json.Marshal(retried)
	require.NoError(t, err)
	require.Contains(t, string(text), `"left":{"n":3}`)

	retried, err = ann.RetryWithDependents(t.Context(), "", source.ID)
	require.NoError(t, err)
	require.Len(t, retried.Runs, 4)
	require.Equal(t, store.RunUnchanged, retried.Runs[0].Result)
	require.Zero(t, retried.Left)
	kept, err := db.Run(t.Context(), byHand.ID)
	require.NoError(t, err)
	require.Equal(t, store.Cancelled, kept.State)
}
