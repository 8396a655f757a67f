package postgres_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// While a transaction holds an old snapshot, the entries of claimed runs stay in the
// index; heads from the marks on do not step over them.
func TestHeadsFromTheMarksDoNotStepOverWhatWasClaimed(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, err := db.Enqueue(t.Context(), newRuns(1)...)
	require.NoError(t, err)
	snapshot, err := connect(t, db.url).Begin(t.Context())
	require.NoError(t, err)
	_, err = snapshot.Exec(t.Context(), "set transaction isolation level repeatable read")
	require.NoError(t, err)
	_, err = snapshot.Exec(t.Context(), "select count(*) from "+db.schema+".runs")
	require.NoError(t, err)
	var lane store.LaneID
	var mark time.Time
	for range 20 {
		_, err := db.Enqueue(t.Context(), newRuns(1000)...)
		require.NoError(t, err)
		r, claimed := claim(t, db, worker("w"), 2000, time.Minute)
		lane, mark = r.Steps[0].Lane, claimed[len(claimed)-1].DueAt
	}
	late := newRun()
	_, err = db.Enqueue(t.Context(), late)
	require.NoError(t, err)
	marked := serves
	marked.From = map[store.LaneID]time.Time{lane: mark}
	all, err := db.Heads(t.Context(), serves)
	require.NoError(t, err)
	some, err := db.Heads(t.Context(), marked)
	require.NoError(t, err)
	require.Len(t, some, 1)
	require.True(t, some[0].Waiting)
	require.Equal(t, all[0].DueAt, some[0].DueAt)

	cost := func(marks string) int {
		return blocksOf(t, db, queries.Heads, marks, serves.Queues, serves.Jobs)
	}
	text, err := json.Marshal(map[string]time.Time{"1": mark})
	require.NoError(t, err)
	require.EqualValues(t, 1, lane)
	require.Less(t, cost(string(text)), cost("{}")/4)
	require.NoError(t, snapshot.Rollback(t.Context()))
}

// blocksOf is how many blocks the server reads for a statement.
func blocksOf(t *testing.T, db opened, statement string, args ...any) int {
	conn := connect(t, db.url)
	_, err := conn.Exec(t.Context(), "set enable_seqscan = off; set enable_bitmapscan = off")
	require.NoError(t, err)
	return explained(t, conn, asSent(t, statement, db.schema+"."), args...)
}

// explained executes a statement and returns how many blocks the server has read for it,
// or for the dearest of its parts: those that nothing refers to do not count for the whole.
func explained(t *testing.T, conn *pgx.Conn, statement string, args ...any) int {
	t.Helper()
	var plan string
	require.NoError(t, conn.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+statement, args...).Scan(&plan))
	type node struct {
		Hit   int    `json:"Shared Hit Blocks"`
		Read  int    `json:"Shared Read Blocks"`
		Plans []node `json:"Plans"`
	}
	var read []struct{ Plan node }
	require.NoError(t, json.Unmarshal([]byte(plan), &read))
	var most func(node) int
	most = func(n node) int {
		blocks := n.Hit + n.Read
		for _, part := range n.Plans {
			blocks = max(blocks, most(part))
		}
		return blocks
	}
	return most(read[0].Plan)
}

// TestTurnsOfManyKeysAreTakenByTheirGates has the keys of a limit wait in one line of
// turns: what one claim reads does not grow with the others, also where nothing was ever
// analyzed.
func TestTurnsOfManyKeysAreTakenByTheirGates(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	require.NoError(t, db.ChangeLimit(t.Context(), store.LimitChange{Command: store.SetLimit, By: "ann",
		Limit: store.Limit{Name: "key", Kind: store.LimitSemaphore, Max: 1}}))
	keys := 0
	blocks := func(more int) int {
		runs := newRuns(more)
		for i := range runs {
			runs[i].Limits = []store.LimitUse{{Limit: "key", Key: strconv.Itoa(keys)}}
			keys++
		}
		_, err := db.Enqueue(t.Context(), runs...)
		require.NoError(t, err)
		conn := connect(t, db.url)
		db.exec(t, conn, "set enable_seqscan = off; set enable_bitmapscan = off; set plan_cache_mode = force_generic_plan")
		db.exec(t, conn, "prepare take as "+asSent(t, queries.TakeTurns, db.schema+"."))
		return explained(t, conn, "execute take ('{1}', '{50}', 50, 1000, 50)")
	}
	few := blocks(200)
	require.Less(t, blocks(20_000), 2*few)
}
