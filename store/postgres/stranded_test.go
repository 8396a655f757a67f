package postgres_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// openLogged is openStore with what the store logs.
func openLogged(t *testing.T) (opened, *bytes.Buffer) {
	t.Helper()
	store, log := openStore(t, ""), &bytes.Buffer{}
	logged, err := postgres.Open(t.Context(), store.url, postgres.Config{Schema: store.schema, MaxConns: 4,
		Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	t.Cleanup(logged.Close)
	return opened{Store: logged, url: store.url, schema: store.schema}, log
}

// An operator has deleted the lease of a worker that is gone.
func TestRunsWithoutALeaseAreShownAndHandedBack(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	_, err := db.Enqueue(t.Context(), newRuns(5)...)
	require.NoError(t, err)
	_, held := claim(t, db, worker("living"), 2, time.Minute)
	gone, lost := claim(t, db, worker("gone"), 3, time.Minute)
	require.Empty(t, foundOnce(t, db.Store)["running runs"])
	require.Zero(t, sweep(t, db, sweeper()).Deleted) // a full pass has just been
	db.exec(t, conn, "delete from %s.leases where claim_id = $1", gone.Claim)
	require.Contains(t, foundOnce(t, db.Store)["running runs"], "3 have no lease")
	counts, err := db.Counts(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, counts[store.Running].N)
	require.Zero(t, counts[store.Succeeded].N)
	page, err := db.Runs(t.Context(), store.Filter{States: []store.State{store.Running}})
	require.NoError(t, err)
	require.Len(t, page.Runs, len(held)+len(lost))
	db.exec(t, conn, "update %s.sweep set began_at = began_at - interval '1 minute'")
	require.Len(t, sweep(t, db, sweeper()).Returned, 3)
	require.Empty(t, foundOnce(t, db.Store)["running runs"])
	requireConsistent(t, db)
}

// An operator has ended runs by hand and left their rows of ready.
func TestClaimStartsNothingThatIsNotPending(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"ended":   "update %s.runs set state = 5, finished_at = now() where id = any ($1)",
		"deleted": "delete from %s.runs where id = any ($1)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, log := openLogged(t)
			conn := connect(t, db.url)
			runs := newRuns(6)
			_, err := db.Enqueue(t.Context(), runs...)
			require.NoError(t, err)
			db.exec(t, conn, statement, []store.RunID{runs[0].ID, runs[1].ID, runs[3].ID})
			_, none := claim(t, db, worker("w"), 2, time.Minute)
			require.Empty(t, none, "the first two cannot be started")
			require.Zero(t, db.count(t, conn, "select count(*) from %s.leases"), "a lease of nothing")
			require.Contains(t, log.String(), runs[1].ID.String())
			r, claimed := claim(t, db, worker("w"), 6, time.Minute)
			require.Len(t, claimed, 3)
			require.Contains(t, log.String(), runs[3].ID.String())
			require.Zero(t, db.count(t, conn, "select count(*) from %s.ready"))
			done := settlement(r, claimed, store.Outcome{Kind: store.Success})
			done.Claimed = len(claimed)
			_, err = db.Settle(t.Context(), []store.Settlement{done})
			require.NoError(t, err)
			require.Zero(t, db.count(t, conn, "select count(*) from %s.leases"))
			require.Zero(t, db.count(t, conn, "select count(*) from %s.runs where state = 1"))
		})
	}
}

// A restore in part has lost rows of ready.
func TestSweepPutsPendingRunsBackIntoTheirLine(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	runs := newRuns(6, durable.After(time.Hour))
	_, err := db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	db.exec(t, conn, "update %s.runs set lane = -lane, crash_count = 2 where id = $1", runs[0].ID)
	db.exec(t, conn, "delete from %s.ready where run_id = any ($1)", []store.RunID{runs[0].ID, runs[1].ID})
	tx := hold(t, db, "runs", "id = $1", runs[2].ID)
	db.exec(t, conn, "delete from %s.ready where run_id = $1", runs[2].ID)
	require.Equal(t, 2, sweep(t, db, sweeper()).Mended, "one is held")
	require.NoError(t, tx.Rollback(t.Context()))
	db.exec(t, conn, "update %s.sweep set began_at = began_at - interval '1 hour'")
	require.Equal(t, 1, sweep(t, db, sweeper()).Mended)
	db.exec(t, conn, "update %s.sweep set began_at = began_at - interval '1 hour'")
	require.Zero(t, sweep(t, db, sweeper()).Mended)
	requireConsistent(t, db)
	require.Equal(t, 6, db.count(t, conn, "select count(*) from %s.ready y join %s.runs r on r.id = y.run_id and r.lane = y.lane and r.due_at = y.due_at"))
}
