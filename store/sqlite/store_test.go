package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
	"github.com/durable-worker/durable-worker/store/storetest"
)

// TestContract runs what every store must do.
func TestContract(t *testing.T) {
	var ahead sync.Map // how far the clock of each store was moved
	storetest.TestStore(t, storetest.Backend{
		New: func(t *testing.T) store.Store {
			offset := new(atomic.Int64)
			clock := func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
			s := open(t, newPath(t), sqlite.Config{Clock: clock})
			migrate(t, s)
			ahead.Store(s, offset)
			return s
		},
		Advance: func(_ *testing.T, s store.Store, d time.Duration) {
			offset, _ := ahead.Load(s)
			offset.(*atomic.Int64).Add(int64(d))
		},
		Begin: func(t *testing.T, s store.Store) storetest.Transaction {
			store := s.(*sqlite.Store)
			tx := begin(t, own(t, store))
			return storetest.Transaction{Tx: store.WithTx(tx), Commit: tx.Commit, Rollback: func() { _ = tx.Rollback() }}
		},
	})
}

func newPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "runs.db")
}

func open(t *testing.T, path string, config sqlite.Config) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, config)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func migrate(t *testing.T, s *sqlite.Store) {
	t.Helper()
	_, err := s.Migrate(t.Context())
	require.NoError(t, err)
}

// openMigrated opens a fresh store.
func openMigrated(t *testing.T) (s *sqlite.Store, path string) {
	t.Helper()
	path = newPath(t)
	s = open(t, path, sqlite.Config{})
	migrate(t, s)
	return s, path
}

func newRuns(n int) []store.NewRun {
	runs := make([]store.NewRun, n)
	for i := range runs {
		runs[i] = store.NewRun{ID: store.NewRunID(), Job: "mail", Queue: "default", Args: []byte(`{"to":"a@example.com"}`), MaxAttempts: 3}
	}
	return runs
}

// claim takes up to n runs of the lane of newRuns.
func claim(t *testing.T, s *sqlite.Store, n int) (lease.ClaimID, []store.ClaimedRun) {
	t.Helper()
	request := store.ClaimRequest{
		Claim: lease.NewClaimID(), Worker: worker(), Duration: time.Minute, Limit: n,
		Steps: []store.Step{{Lane: 1, Take: n}},
	}
	runs, err := s.Claim(t.Context(), request)
	require.NoError(t, err)
	return request.Claim, runs
}

func worker() store.WorkerID { return store.WorkerID{Name: "w", Instance: uuid.New()} }

// succeed makes the last settlement of a claim.
func succeed(id lease.ClaimID, runs []store.ClaimedRun) []store.Settlement {
	settled := make([]store.Settled, len(runs))
	for i := range runs {
		settled[i] = store.Settled{ID: runs[i].ID, Outcome: store.Outcome{Kind: store.Success}}
	}
	return []store.Settlement{{Claim: id, Worker: worker(), Runs: settled, Last: true}}
}

// integrity asks SQLite whether the file is sound.
func integrity(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	var answer string
	require.NoError(t, db.QueryRow("PRAGMA integrity_check").Scan(&answer))
	require.Equal(t, "ok", answer)
}
