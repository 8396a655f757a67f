package sqlite_test

import (
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// sweepable is a store whose clock can be moved, and a connection of an
// operator to its file.
func sweepable(t testing.TB, path string) (s *sqlite.Store, db *sql.DB, advance func(time.Duration)) {
	t.Helper()
	var ahead atomic.Int64
	s, err := sqlite.Open(t.Context(), path, sqlite.Config{Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	db, err = sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return s, db, func(d time.Duration) { ahead.Add(int64(d)) }
}

func count(t testing.TB, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(query, args...).Scan(&n), query)
	return n
}

func sweep(t testing.TB, s *sqlite.Store) store.SweepResult {
	t.Helper()
	var all store.SweepResult
	request := store.SweepRequest{By: uuid.New(), Retention: 24 * time.Hour, RetentionDead: 48 * time.Hour, Limit: 1000}
	for !all.Done {
		swept, err := s.Sweep(t.Context(), request)
		require.NoError(t, err)
		require.False(t, swept.Busy)
		require.LessOrEqual(t, swept.Deleted, 100, "a step holds the file's lock")
		all.Mended += swept.Mended
		all.Deleted, all.Done, all.Returned = all.Deleted+swept.Deleted, swept.Done, append(all.Returned, swept.Returned...)
	}
	return all
}

// finish enqueues and ends runs.
func finish(t testing.TB, s *sqlite.Store, n int, kind store.OutcomeKind) []store.NewRun {
	t.Helper()
	runs := newRuns(n)
	_, err := s.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: worker(), Duration: time.Minute, Limit: n, Steps: []store.Step{{Lane: 1, Take: n}}}
	claimed, err := s.Claim(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, claimed, n)
	settlements := succeed(request.Claim, claimed)
	for i := range settlements[0].Runs {
		settlements[0].Runs[i].Outcome = store.Outcome{Kind: kind, Error: "x"}
	}
	_, err = s.Settle(t.Context(), settlements)
	require.NoError(t, err)
	return runs
}

func TestSweepWalksInTheOrderOfStorage(t *testing.T) {
	s, db, advance := sweepable(t, newPath(t))
	require.Zero(t, sweep(t, s).Deleted)
	finish(t, s, 350, store.Success)
	finish(t, s, 5, store.Death)
	pass := func() int { return count(t, db, "SELECT began_at FROM sweep") }
	began := pass()
	advance(25*time.Hour + time.Minute)
	_, err := db.Exec("UPDATE sweep SET began_at = began_at + ?", (25*time.Hour + time.Minute).Microseconds())
	require.NoError(t, err)
	require.Equal(t, 350, sweep(t, s).Deleted, "by the walk alone")
	require.Equal(t, began+int((25*time.Hour+time.Minute).Microseconds()), pass())
	advance(24 * time.Hour)
	require.Equal(t, 5, sweep(t, s).Deleted, "by the pass: the walk has gone by")
	require.Zero(t, count(t, db, "SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM attempts) + (SELECT count(*) FROM problems)"))
	require.Zero(t, count(t, db, "SELECT position FROM sweep"), "numbers are given again")
}

func TestSweepAndUniqueKeys(t *testing.T) {
	s, db, advance := sweepable(t, newPath(t))
	runs := finish(t, s, 4, store.Success)
	now := time.Now()
	for i, held := range []any{nil, now.Add(time.Hour).UnixMicro(), now.Add(30 * time.Hour).UnixMicro()} {
		key := fmt.Sprint("key ", i)
		_, err := db.Exec("UPDATE runs SET key = ? WHERE id = ?", key, runs[i].ID[:])
		require.NoError(t, err)
		_, err = db.Exec("INSERT INTO unique_keys (job, key, run_id, latest, held_to) VALUES ('mail', ?, ?2, ?2, ?)", key, runs[i].ID[:], held)
		require.NoError(t, err)
		_, err = db.Exec("INSERT INTO progress (run_id, updated_at) VALUES (?, 0)", runs[i].ID[:])
		require.NoError(t, err)
	}
	_, err := db.Exec("UPDATE runs SET key = 'key 2' WHERE id = ?", runs[3].ID[:]) // another run has it by now
	require.NoError(t, err)
	advance(26 * time.Hour)
	require.Equal(t, 3, sweep(t, s).Deleted)
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM unique_keys WHERE key = 'key 2'"))
	require.Equal(t, 1, count(t, db, "SELECT (SELECT count(*) FROM unique_keys) + (SELECT count(*) FROM progress) - 1"))
	advance(5 * time.Hour)
	require.Equal(t, 1, sweep(t, s).Deleted)
	require.Zero(t, count(t, db, "SELECT (SELECT count(*) FROM unique_keys) + (SELECT count(*) FROM progress)"))
}

func TestSweepOfARunThatIsToBeCancelled(t *testing.T) {
	s, db, advance := sweepable(t, newPath(t))
	_, err := s.Enqueue(t.Context(), newRuns(3)...)
	require.NoError(t, err)
	gone, runs := claim(t, s, 2)
	_, alive := claim(t, s, 1)
	for _, statement := range []string{
		"INSERT INTO cancels (claim_id, run_id) SELECT claim_id, id FROM runs WHERE state = 1",
		"UPDATE runs SET cancel = 'no longer wanted' WHERE state = 1",
		"INSERT INTO workers (instance, name, started_at, declared_at) VALUES (x'01', 'old', 0, 0)",
	} {
		_, err = db.Exec(statement)
		require.NoError(t, err)
	}
	_, err = db.Exec("UPDATE runs SET cancel = NULL WHERE id = ?", runs[1].ID[:])
	require.NoError(t, err)
	_, err = db.Exec("DELETE FROM leases WHERE claim_id = ?", gone[:])
	require.NoError(t, err)
	advance(2 * time.Hour)
	swept := sweep(t, s)
	require.Len(t, swept.Returned, 2)
	for id, want := range map[store.RunID]store.State{runs[0].ID: store.Cancelled, runs[1].ID: store.Pending, alive[0].ID: store.Running} {
		record, err := s.Run(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, record.State)
	}
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM cancels"))
	require.Zero(t, count(t, db, "SELECT count(*) FROM workers"))
}

// BenchmarkSweep deletes runs that have ended, with what is theirs; one
// operation is one step, which holds the file's lock as long as it takes.
func BenchmarkSweep(b *testing.B) {
	s, _, advance := sweepable(b, b.TempDir()+"/runs.db")
	for range 20 {
		finish(b, s, 1000, store.Death)
	}
	advance(100 * time.Hour)
	request := store.SweepRequest{By: uuid.New(), Retention: time.Hour, RetentionDead: time.Hour, Limit: 1000}
	b.ResetTimer()
	deleted := 0
	for range b.N {
		swept, err := s.Sweep(b.Context(), request)
		require.NoError(b, err)
		deleted += swept.Deleted
	}
	b.ReportMetric(float64(deleted)/float64(b.N), "runs/op")
}
