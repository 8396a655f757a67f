package sqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func TestManyRunsAreCountedExactly(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(t.Context(), t.TempDir()+"/runs.db", sqlite.Config{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	runs := newRuns(150_000)
	_, err = s.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	operator := operate.New(s, operate.Config{}).As("test")
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
	require.Equal(t, store.Count{N: 119_999}, counts[store.Pending])
	require.Equal(t, store.Count{}, counts[store.Succeeded], "no run has been executed")
	require.Equal(t, store.Count{N: 1}, counts[store.Cancelled])
}

// Rows are made in SQL, because a million runs take long to enqueue.
func TestMoreRunsThanAreCountedSaySo(t *testing.T) {
	t.Parallel()
	s, _ := openMigrated(t)
	_, err := s.Enqueue(t.Context(), newRuns(1)...)
	require.NoError(t, err)
	db := own(t, s)
	fill := func(state, first, last int) { // with ids in order, which is quicker than random ones
		_, err := db.ExecContext(t.Context(), `WITH RECURSIVE number (n) AS (SELECT ?2 UNION ALL SELECT n + 1 FROM number WHERE n < ?3)
			INSERT INTO runs (id, created_at, due_at, lane, max_attempts, args, state, finished_at)
			SELECT CAST(printf('%d%015d', ?1, n) AS BLOB), 1, 1, 1, 1, '{}', ?1, 1 FROM number`, state, first, last)
		require.NoError(t, err)
	}
	fill(2, 1, 119)
	fill(1, 1, 1_000_100) // neither pending nor ended: what the remainder would be made of
	counts, err := s.Counts(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.Count{N: 119, AtLeast: true}, counts[store.Succeeded])
	require.Equal(t, store.Count{N: 1}, counts[store.Pending])

	fill(2, 120, 1_000_119)
	counts, err = s.Counts(t.Context())
	require.NoError(t, err)
	require.True(t, counts[store.Succeeded].Estimated)
	require.InDelta(t, 1_000_119, counts[store.Succeeded].N, 20_000)
}
