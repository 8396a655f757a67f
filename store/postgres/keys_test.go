package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/storetest"
)

func TestKeysOfEightStores(t *testing.T) {
	t.Parallel()
	first := openURL(t, pgtest.Database(t), "durable")
	stores := []store.Store{first}
	for range 7 {
		stores = append(stores, openURL(t, first.url, first.schema))
	}
	storetest.TestKeyRaces(t, stores...)
	requireConsistent(t, first)
	requireDeadlocks(t, first, 0)
}

// requireDeadlocks wants the server to have ended so many deadlocks in the
// store's database, which is no other test's.
func requireDeadlocks(t *testing.T, store opened, want int64) {
	t.Helper()
	var n int64
	require.NoError(t, connect(t, store.url).QueryRow(t.Context(), "select deadlocks from pg_stat_database where datname = current_database()").Scan(&n))
	require.Equal(t, want, n, "deadlocks")
}

// enqueueSoon enqueues in a goroutine of its own, and returns once it waits for
// a lock.
func enqueueSoon(t *testing.T, db opened, run store.NewRun) <-chan store.Receipt {
	t.Helper()
	answer := make(chan store.Receipt, 1)
	go func() {
		receipts, err := db.Enqueue(context.WithoutCancel(t.Context()), run)
		if err != nil {
			t.Error(err)
			receipts = []store.Receipt{{}}
		}
		answer <- receipts[0]
	}()
	conn := connect(t, db.url)
	require.Eventually(t, func() bool {
		var waits bool
		err := conn.QueryRow(t.Context(), "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%'||$1||'%')", db.schema).Scan(&waits)
		return err == nil && waits
	}, 20*time.Second, 10*time.Millisecond)
	return answer
}

// A claim that has the run's place in the line decides what a replacement
// does: it waits for the claim's end, whichever that is.
func TestReplaceWaitsForTheClaimUnderWay(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("commits=%t", commits), func(t *testing.T) {
			t.Parallel()
			db := openStore(t, "")
			receipts, err := db.Enqueue(t.Context(), newRun(durable.Replace("k")))
			require.NoError(t, err)
			tx, err := connect(t, db.url).Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "delete from "+db.schema+".ready")
			require.NoError(t, err)
			next := newRun(durable.Replace("k"))
			answer := enqueueSoon(t, db, next)
			if commits {
				_, err = tx.Exec(t.Context(), "update "+db.schema+".runs set state = 1, attempt = 1")
				require.NoError(t, err)
				require.NoError(t, tx.Commit(t.Context()))
				require.Equal(t, store.Receipt{ID: next.ID}, <-answer)
			} else {
				require.NoError(t, tx.Rollback(t.Context()))
				require.Equal(t, store.Receipt{ID: receipts[0].ID, Existing: true}, <-answer)
				requireConsistent(t, db)
			}
		})
	}
}

func TestALockedKeyHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	first, err := db.Enqueue(t.Context(), newRun(durable.Unique("k")))
	require.NoError(t, err)
	tx := hold(t, db, "unique_keys", "key = 'k'")
	_, err = db.Enqueue(t.Context(), newRun(), newRun(durable.Unique("other")))
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = db.Enqueue(short, newRun(durable.Unique("k")))
	require.Error(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	again, err := db.Enqueue(t.Context(), newRun(durable.Unique("k")))
	require.NoError(t, err)
	require.Equal(t, store.Receipt{ID: first[0].ID, Existing: true}, again[0])
}

func TestKeyOfARunThatWasDeletedIsFree(t *testing.T) {
	t.Parallel()
	store := openStore(t, "")
	conn := connect(t, store.url)
	_, err := store.Enqueue(t.Context(), newRun(durable.UniqueFor("k", time.Hour)))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), fmt.Sprintf("delete from %[1]s.runs; delete from %[1]s.ready", store.schema))
	require.NoError(t, err)
	receipts, err := store.Enqueue(t.Context(), newRun(durable.UniqueFor("k", time.Hour)))
	require.NoError(t, err)
	require.False(t, receipts[0].Existing)
	_, err = conn.Exec(t.Context(), fmt.Sprintf("delete from %[1]s.unique_keys", store.schema)) // swept
	require.NoError(t, err)
	receipts, err = store.Enqueue(t.Context(), newRun(durable.Replace("k")))
	require.NoError(t, err)
	require.False(t, receipts[0].Existing)
}

func TestPlansOfKeysOfAColdDatabaseUseIndexes(t *testing.T) {
	t.Parallel()
	db := openURL(t, pgtest.Database(t), "durable")
	conn := connect(t, db.url)
	withoutAutovacuum(t, db)
	keyed := func(from, n int) []store.NewRun {
		runs := make([]store.NewRun, n)
		for i := range runs {
			runs[i] = newRun(durable.Replace(fmt.Sprint("key ", from+i)))
		}
		return runs
	}
	for range 10 { // plans are made on empty tables, and kept
		_, err := db.Enqueue(t.Context(), keyed(0, 1)...)
		require.NoError(t, err)
	}
	const total = 20_000
	for from := range total / 5000 {
		_, err := db.Enqueue(t.Context(), keyed(from*5000, 5000)...)
		require.NoError(t, err)
	}
	for i := range 100 {
		_, err := db.Enqueue(t.Context(), keyed(i*100, 3)...)
		require.NoError(t, err)
	}
	db.Close()
	var whole, byIndex, updated int64
	require.Eventually(t, func() bool {
		err := conn.QueryRow(t.Context(), `select sum(seq_tup_read), sum(idx_tup_fetch), sum(n_tup_upd)
			from pg_stat_user_tables where relname in ('runs', 'ready', 'unique_keys')`).Scan(&whole, &byIndex, &updated)
		return err == nil && updated >= 600
	}, 20*time.Second, 50*time.Millisecond)
	require.Zero(t, whole, "rows read by sequential scans")
	require.Less(t, byIndex, int64(10*total), "rows read by way of indexes")
}

// A caller's transaction decides: until it ends no one else gets the key, and
// what it rolls back was never there.
func TestKeysInACallersTransaction(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	for _, commits := range []bool{false, true} {
		tx, err := connect(t, db.url).Begin(t.Context())
		require.NoError(t, err)
		inside := newRun(durable.Unique("k"))
		receipts, err := db.WithTx(tx).Enqueue(t.Context(), inside, newRun(durable.Unique("k")), newRun())
		require.NoError(t, err)
		require.Equal(t, []bool{false, true, false}, []bool{receipts[0].Existing, receipts[1].Existing, receipts[2].Existing})
		require.Equal(t, inside.ID, receipts[1].ID)
		var limit string
		require.NoError(t, tx.QueryRow(t.Context(), "select current_setting('lock_timeout')||current_setting('enable_seqscan')").Scan(&limit))
		require.Equal(t, "0on", limit, "the caller's own settings stand")
		outside := newRun(durable.Unique("k"))
		answer := enqueueSoon(t, db, outside)
		if commits {
			require.NoError(t, tx.Commit(t.Context()))
			require.Equal(t, store.Receipt{ID: inside.ID, Existing: true}, <-answer)
			continue
		}
		require.NoError(t, tx.Rollback(t.Context()))
		require.Equal(t, store.Receipt{ID: outside.ID}, <-answer)
		_, err = db.Run(t.Context(), inside.ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, runs := claim(t, db, worker("w"), 10, time.Minute)
		require.Len(t, runs, 1)
		_, err = connect(t, db.url).Exec(t.Context(), fmt.Sprintf("update %s.runs set state = 2, finished_at = now()", db.schema))
		require.NoError(t, err)
	}
}
