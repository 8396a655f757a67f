package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// own opens the store's file for tables of the test's own.
func own(t *testing.T, s *sqlite.Store) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", s.DSN())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func TestTx_IsRefusedOnAnotherFile(t *testing.T) {
	t.Parallel()
	s, _ := openMigrated(t)
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "other.db"))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = s.WithTx(begin(t, db)).Enqueue(t.Context(), newRuns(1)...)
	require.ErrorIs(t, err, store.ErrInvalid)
	require.ErrorContains(t, err, "other.db")
}

func TestTx_DSNBeginsWritersThatAreAsSafeAsTheStore(t *testing.T) {
	t.Parallel()
	for level, want := range map[sqlite.Synchronous]string{sqlite.SyncFull: "2", sqlite.SyncNormal: "1"} {
		s := open(t, newPath(t), sqlite.Config{Synchronous: level, LockTimeout: 1234 * time.Millisecond})
		db := own(t, s)
		for pragma, want := range map[string]string{"synchronous": want, "busy_timeout": "1234", "journal_mode": "wal"} {
			var got string
			require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got))
			require.Equal(t, want, got, pragma)
		}
		first := begin(t, db)
		impatient, err := sql.Open("sqlite", "file:"+filepath.ToSlash(pathOf(t, db))+"?_txlock=immediate")
		require.NoError(t, err)
		_, err = impatient.BeginTx(t.Context(), nil)
		require.ErrorContains(t, err, "locked", "the transaction of the DSN holds the write lock from its beginning")
		require.NoError(t, impatient.Close())
		require.NoError(t, first.Rollback())
	}
}

// pathOf asks a database for its file.
func pathOf(t *testing.T, db *sql.DB) (path string) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path))
	return path
}

// An Enqueue that fails half-way leaves nothing in a transaction that its owner
// commits all the same: a run without its place in the line would be lost.
func TestTx_FailedEnqueueLeavesNothing(t *testing.T) {
	t.Parallel()
	s, _ := openMigrated(t)
	db := own(t, s)
	_, err := db.ExecContext(t.Context(), "CREATE TRIGGER full BEFORE INSERT ON ready BEGIN SELECT RAISE(FAIL, 'no room'); END")
	require.NoError(t, err)
	tx := begin(t, db)
	_, err = s.WithTx(tx).Enqueue(t.Context(), newRuns(3)...)
	require.ErrorContains(t, err, "no room")
	require.NoError(t, tx.Commit())
	counts, err := s.Counts(t.Context())
	require.NoError(t, err)
	require.Zero(t, counts[store.Succeeded].N+counts[store.Pending].N, "%v", counts)
}

func TestTx_ListenersAreWokenByTheCommit(t *testing.T) {
	t.Parallel()
	s, _ := openMigrated(t)
	db := own(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	woken, ended := make(chan time.Time, 100), make(chan error, 1)
	go func() { ended <- s.Listen(ctx, func(store.Signal) { woken <- time.Now() }) }()
	require.Eventually(t, func() bool { // until it listens
		tx := begin(t, db)
		_, err := s.WithTx(tx).Enqueue(t.Context(), newRuns(1)...)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		select {
		case <-woken:
			return true
		case <-time.After(200 * time.Millisecond):
			return false
		}
	}, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}

func TestTx_AReportIsAConflictMeanwhile(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), sqlite.Config{LockTimeout: 200 * time.Millisecond})
	migrate(t, s)
	tx := begin(t, own(t, s))
	err := s.Report(t.Context(), store.Holder{Run: store.NewRunID(), Claim: lease.NewClaimID()}, store.Report{Checkpoint: []byte(`1`)})
	require.ErrorIs(t, err, store.ErrConflict)
	require.NoError(t, tx.Rollback())
}

// shop is a worker whose handler writes into a table of the user's own.
func shop(t *testing.T, s *sqlite.Store, db *sql.DB, handle func(context.Context, *durable.Run[string]) error) (runOne func() store.Record) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), "CREATE TABLE shop_effects (run TEXT)")
	require.NoError(t, err)
	job := durable.NewJob[string]("order", durable.Retry(durable.Fixed(10*time.Millisecond)))
	w := durable.NewWorker(s, durable.WorkerConfig{PollInterval: 20 * time.Millisecond, Terms: lease.Terms{Duration: 30 * time.Second}})
	durable.Register(w, job, handle)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() store.Record {
		receipt, err := job.Enqueue(t.Context(), s, "x")
		require.NoError(t, err)
		var record store.Record
		require.Eventually(t, func() bool {
			record, err = s.Run(t.Context(), receipt.ID)
			return err == nil && record.State.Terminal()
		}, time.Minute, 10*time.Millisecond)
		cancel()
		require.NoError(t, <-ended)
		return record
	}
}

func effects(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM shop_effects").Scan(&n))
	return n
}

func TestTx_CompleteInOnSQLite(t *testing.T) {
	t.Parallel()
	failing := errors.New("the handler fails")
	type end func(try int, tx *sql.Tx) error
	for sentence, finish := range map[string]end{
		"committed": func(_ int, tx *sql.Tx) error { return tx.Commit() },
		"rolled back, then committed": func(try int, tx *sql.Tx) error {
			if try == 1 {
				return tx.Rollback()
			}
			return tx.Commit()
		},
		"committed later": func(_ int, tx *sql.Tx) error {
			time.AfterFunc(300*time.Millisecond, func() { _ = tx.Commit() })
			return nil
		},
		"rolled back later, then committed": func(try int, tx *sql.Tx) error {
			if try == 1 {
				time.AfterFunc(300*time.Millisecond, func() { _ = tx.Rollback() })
				return nil
			}
			return tx.Commit()
		},
		"committed, and the handler fails": func(_ int, tx *sql.Tx) error { return errors.Join(tx.Commit(), failing) },
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			s, _ := openMigrated(t)
			db, tries := own(t, s), 0
			record := shop(t, s, db, func(ctx context.Context, run *durable.Run[string]) error {
				tries++
				tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
				if err != nil {
					return err
				}
				if err := run.Guard(ctx, s.WithTx(tx)); err != nil {
					return errors.Join(err, tx.Rollback())
				}
				if _, err := tx.ExecContext(ctx, "INSERT INTO shop_effects VALUES (?)", run.ID.String()); err != nil {
					return errors.Join(err, tx.Rollback())
				}
				if err := run.SetResult(tries); err != nil {
					return err
				}
				if err := run.CompleteIn(ctx, s.WithTx(tx)); err != nil {
					return errors.Join(err, tx.Rollback())
				}
				return finish(tries, tx)
			})()
			require.Equal(t, store.Succeeded, record.State)
			require.Equal(t, fmt.Sprint(tries), string(record.Result))
			require.Len(t, record.Attempts, tries)
			require.Equal(t, 1, effects(t, db))
			if tries > 1 {
				require.Equal(t, "completed in a transaction that was not committed", *record.Attempts[0].Error)
			}
		})
	}
}
