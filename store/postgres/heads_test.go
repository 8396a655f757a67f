package postgres_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

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
	var plan string
	require.NoError(t, conn.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+strings.ReplaceAll(statement, "durable.", db.schema+"."),
		args...).Scan(&plan))
	var read []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(plan), &read))
	return read[0].Plan.Hit + read[0].Plan.Read
}
