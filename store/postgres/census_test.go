package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

func TestLimitKeys_OfAThousandKeysTheOneThatFloodsIsFirst(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	limit := store.Limit{Name: "tenant", Kind: store.LimitSemaphore, Max: 5}
	require.NoError(t, db.Declare(t.Context(), store.Declaration{Worker: worker("w"), Limits: []store.Limit{limit}}))
	_, err := db.Enqueue(t.Context(), newRun(durable.LimitedByUse(store.LimitUse{Limit: "tenant", Key: "acme"})))
	require.NoError(t, err)
	conn := connect(t, db.url)
	// Rows as 1,000 keys have them: 10 runs wait for each, and of one 10,000 more.
	insert := func(n int, gate string) {
		_, err := conn.Exec(t.Context(), "insert into "+db.schema+".waiting (gate, due_at, run_id, lane, more) select "+gate+
			", now() + n * interval '1 ms', gen_random_uuid(), w.lane, false from generate_series(1, $1) n, (select gate, lane from "+db.schema+".waiting limit 1) w", n)
		require.NoError(t, err)
	}
	insert(9_990, "(w.gate >> 43 << 43) + n / 10")
	insert(9_999, "w.gate")
	_, err = conn.Exec(t.Context(), "vacuum analyze "+db.schema+".waiting")
	require.NoError(t, err)
	list, err := db.LimitKeys(t.Context(), "tenant", 20)
	require.NoError(t, err)
	require.Len(t, list.Keys, 20)
	require.Equal(t, "acme", list.Keys[0].Key)
	require.Equal(t, store.Count{N: 10_000}, list.Keys[0].Waiting)
	require.EqualValues(t, 10, list.Keys[1].Waiting.N)
	require.GreaterOrEqual(t, list.Known.N, int64(1_000))

	// Keys of lower numbers fill what is counted one by one.
	insert(245_000, "(w.gate >> 43 << 43) + 2000 + n % 100")
	list, err = db.LimitKeys(t.Context(), "tenant", 20)
	require.NoError(t, err)
	require.Equal(t, "acme", list.Keys[0].Key)
	require.True(t, list.Keys[0].Waiting.Estimated, "it comes from a sample")
	require.InDelta(t, 10_000, list.Keys[0].Waiting.N, 6_000)
}
