package postgres_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// What handlers record, and what releases read, keeps to its indexes. On a connection without the
// guard a table with few rows is read whole, and that plan is kept when it grows.
func TestWhatHandlersRecordKeepsToItsIndexes(t *testing.T) {
	t.Parallel()
	db := openURL(t, pgtest.Database(t), "durable")
	conn := connect(t, db.url)
	db.exec(t, conn, "set search_path = "+db.schema)
	alone := func() { // sessions tell what they have read when they end
		t.Helper()
		require.Eventually(t, func() (ended bool) {
			require.NoError(t, conn.QueryRow(t.Context(), "select count(*) = 1 from pg_stat_activity where datname = current_database() and backend_type = 'client backend'").Scan(&ended))
			return ended
		}, 20*time.Second, 20*time.Millisecond, "the sessions have ended")
	}
	read := func() (tables int) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), "select sum(seq_scan) from pg_stat_user_tables where relname in ('steps', 'inputs', 'edges', 'notices', 'batches', 'members', 'batch_changes')").Scan(&tables))
		return tables
	}
	_, err := db.Enqueue(t.Context(), newRuns(1)...)
	require.NoError(t, err)
	request, runs := claim(t, db, worker("w"), 1, time.Minute)
	waitingRows(t, db, conn, 0, 40)
	batch := &store.NewBatch{ID: store.NewRunID(), Name: "pages"}
	_, err = db.Enqueue(t.Context(), members(1, batch)...)
	require.NoError(t, err)
	batchRows(t, db, conn, 0, 40)
	db.exec(t, conn, "insert into batch_changes (batch) select gen_random_uuid() from generate_series(1, 40)")
	db.exec(t, conn, "analyze")
	db.Close()
	alone()
	before := read()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // workers bound their calls
	defer cancel()
	working := openMigrated(t, db.url, db.schema)
	holder := store.Holder{Run: runs[0].ID, Claim: request.Claim}
	for _, name := range []string{"first", "first"} { // the second time it asks what is stored
		_, err = working.RecordSteps(ctx, []store.NewStep{{Holder: holder, Name: name, Kind: store.StepDone, Value: json.RawMessage("1")}})
		require.NoError(t, err)
	}
	_, err = store.StepsOf(ctx, working, holder.Run)
	require.NoError(t, err)
	_, err = working.Outcomes(ctx, []store.RunID{holder.Run})
	require.NoError(t, err)
	_, err = working.Links(ctx, holder.Run)
	require.NoError(t, err)
	_, err = working.Batch(ctx, batch.ID)
	require.NoError(t, err)
	_, err = working.Batches(ctx, store.BatchFilter{Name: "pages"})
	require.NoError(t, err)
	_, err = working.Members(ctx, batch.ID, store.RunID{}, 10)
	require.NoError(t, err)
	_, err = working.Release(ctx, store.ReleaseRequest{Limit: 10, Look: []store.Look{
		{Run: holder.Run, Name: "first", Kind: store.StepInput}, {Run: holder.Run, Name: "first", Kind: store.StepChildren}}})
	require.NoError(t, err)
	working.Close()
	alone()
	require.Equal(t, before, read(), "tables that were read whole")
}

// Idle workers ask when the next notice is due, over a connection that they have anyway.
func TestLookingForNoticesKeepsNoMoreConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Database(t)
	first := openURL(t, server, "durable")
	first.Close()
	db := openMigrated(t, server, "durable")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // workers bound their calls
	defer cancel()
	_, err := request(ctx, db, worker("w"), 1, time.Minute)
	require.NoError(t, err)
	conn := connect(t, server)
	sessions := func() (n int) {
		t.Helper()
		require.NoError(t, conn.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend'").Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return sessions() <= 3 }, 20*time.Second, 20*time.Millisecond, "those of the migration have ended")
	before := sessions()
	result, err := db.Release(ctx, store.ReleaseRequest{Limit: 10})
	require.NoError(t, err)
	require.Negative(t, result.Next)
	require.Equal(t, before, sessions())
}
