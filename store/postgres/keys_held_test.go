package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// A transaction of a user's that keeps a key holds up those who want the key,
// and no one else, although they wait on connections of the same pool.
func TestKeyThatIsKeptHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	run, holder := held(t, db)
	u := bindings[0].open(t, db)
	kept := newRun(durable.Unique("k"))
	_, err := u.Enqueue(t.Context(), kept)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 8 { // the pool has 4 connections
		waiting.Go(func() {
			receipts, err := durable.NewClient(db).Enqueue(ctx, newRun(durable.Unique("k")))
			if err != nil || receipts[0] != (store.Receipt{ID: kept.ID, Existing: true}) {
				t.Errorf("%v, %v", receipts, err)
			}
		})
	}
	conn := connect(t, db.url)
	require.Eventually(t, func() bool {
		var n int
		err := conn.QueryRow(t.Context(), "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%'||$1||'%'", db.schema).Scan(&n)
		return err == nil && n == 2
	}, 20*time.Second, 10*time.Millisecond)
	for range 20 {
		bounded, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		require.NoError(t, db.Report(bounded, holder, store.Report{Checkpoint: []byte("1")}), "run %s", run)
		_, err := db.Enqueue(bounded, newRun(durable.Unique("another")))
		require.NoError(t, err)
		_, err = db.Operate(bounded, store.RunCommand{Action: store.CancelRuns, Runs: []store.RunID{newRun().ID}, By: "test"})
		require.NoError(t, err)
		cancel()
	}
	require.NoError(t, u.Commit())
	waiting.Wait()
	cancel()
}

// A handler that enqueues with a key that its own open transaction keeps is informed
// so, and does not wait for itself.
func TestEnqueueUnder_SaysThatAKeyIsLocked(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, holder := held(t, db)
	u := bindings[0].open(t, db)
	_, err := u.Enqueue(t.Context(), newRun(durable.Unique("k")))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = db.EnqueueUnder(ctx, holder, newRun(durable.Unique("k")))
	require.ErrorIs(t, err, store.ErrConflict)
	require.NoError(t, u.Commit())
}
