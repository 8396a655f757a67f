package sqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func TestManyRunsAreCountedByASample(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(t.Context(), t.TempDir()+"/runs.db", sqlite.Config{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	runs := newRuns(150_000)
	_, err = s.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	operator := durable.NewOperator(s, "test")
	var some []store.RunID
	for i := range 30_000 {
		some = append(some, runs[1+4*i].ID)
	}
	_, err = operator.Delete(t.Context(), "", some...)
	require.NoError(t, err)
	_, err = operator.Cancel(t.Context(), "", runs[0].ID)
	require.NoError(t, err)

	counts, err := s.Counts(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 120_000, counts[store.Pending].N, 6000)
	require.True(t, counts[store.Pending].Estimated)
	require.Zero(t, counts[store.Succeeded].N, "no run has been executed")
	require.Equal(t, store.Count{N: 1}, counts[store.Cancelled])
}
