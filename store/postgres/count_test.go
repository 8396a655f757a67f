package postgres_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

// Rows are made in SQL, because a million runs take long to enqueue. Beside other tests
// the counts might exceed the time that the store gives them.
func TestMoreRunsThanAreCountedSaySo(t *testing.T) { //nolint:paralleltest // see above
	db := openStore(t, "")
	conn := connect(t, db.url)
	_, err := db.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	fill := func(state, n int) {
		_, err := conn.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s.runs (id, due_at, lane, max_attempts, args, state)
			SELECT lpad(to_hex(1000 * $1::int + n), 32, '0')::uuid, now(), 1, 1, '{}', $1 FROM generate_series(1, $2::int) n`, db.schema), state, n)
		require.NoError(t, err)
	}
	fill(2, 119)
	fill(4, 1_000_100) // in none of the tables that know the states, so that a remainder would count them
	counts, err := db.Counts(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.Count{N: 119, AtLeast: true}, counts[store.Succeeded])
	require.Equal(t, store.Count{N: 1}, counts[store.Pending])

	_, err = conn.Exec(t.Context(), fmt.Sprintf(`UPDATE %s.runs SET state = 2 WHERE state = 4`, db.schema))
	require.NoError(t, err)
	counts, err = db.Counts(t.Context())
	require.NoError(t, err)
	require.True(t, counts[store.Succeeded].Estimated)
	require.InDelta(t, 1_000_219, counts[store.Succeeded].N, 300_000)
}
