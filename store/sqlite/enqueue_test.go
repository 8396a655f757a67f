package sqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

func TestEnqueueOfManyTellsWhichWereThere(t *testing.T) {
	t.Parallel()
	s, path := openMigrated(t)
	runs := newRuns(120)
	_, err := s.Enqueue(t.Context(), append(runs[10:30:30], runs[100])...)
	require.NoError(t, err)
	receipts, err := s.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	require.Len(t, receipts, 120)
	for i, receipt := range receipts {
		there := i >= 10 && i < 30 || i == 100
		want := store.Receipt{ID: runs[i].ID, Existing: there}
		require.Equal(t, want, receipt, i)
	}
	receipts, err = s.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	for _, receipt := range receipts {
		require.True(t, receipt.Existing)
	}
	_, claimed := claim(t, s, 200)
	require.Len(t, claimed, 120)
	integrity(t, path)
}
