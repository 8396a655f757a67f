package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
	"github.com/durable-worker/durable-worker/store/storetest"
)

// oneConnection opens the same schema again with one connection for all but
// the calls of workers, as a process that knows no lane yet.
func oneConnection(t *testing.T, first opened) opened {
	t.Helper()
	store, err := postgres.Open(t.Context(), first.url, postgres.Config{Schema: first.schema, MaxConns: 1})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return opened{store, first.url, first.schema}
}

// TestPool_OneConnectionIsEnough calls every method of a store that has one
// connection, concurrently: a call that asks for a second one while it holds
// the first would wait until its context ends.
func TestPool_OneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	storetest.TestTogether(t, storetest.Backend{
		New: func(t *testing.T) store.Store { return oneConnection(t, openEmpty(t, pgtest.Server(t))) },
	})
}

// TestPool_ReportsOfGuardedRunsLeaveRoom has forty handlers report while their
// own transactions have their runs locked. Enqueues of the same process have to
// go on meanwhile.
func TestPool_ReportsOfGuardedRunsLeaveRoom(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, err := db.Enqueue(t.Context(), newRuns(40)...)
	require.NoError(t, err)
	r, runs := claim(t, db, worker("a"), 40, 10*time.Minute)
	require.Len(t, runs, 40)
	tx := hold(t, db, "runs", "state = 1") // each handler's Guard
	note, done := "x", make(chan error, 2*len(runs))
	for i := range runs {
		holder := store.Holder{Run: runs[i].ID, Claim: r.Claim}
		go func() { done <- db.Report(t.Context(), holder, store.Report{Note: &note}) }()
		go func() {
			_, err := db.EnqueueUnder(t.Context(), holder, newRun())
			done <- err
		}()
	}
	worst := time.Duration(0)
	for ended := 0; ended < cap(done); {
		select {
		case err := <-done:
			require.ErrorIs(t, err, store.ErrConflict)
			ended++
		default:
			began := lease.Elapsed()
			_, err := db.Enqueue(t.Context(), newRun())
			require.NoError(t, err)
			worst = max(worst, lease.Elapsed()-began)
		}
	}
	require.NoError(t, tx.Rollback(t.Context()))
	require.Less(t, worst, 4*time.Second, "an enqueue waits behind the reports and enqueues of guarded runs")
	t.Logf("the slowest enqueue took %v", worst)
}

// TestPool_ChangesOfLockedSchedulesLeaveTheWorkersRoom has more operators wait
// for a locked schedule than a worker has connections.
func TestPool_ChangesOfLockedSchedulesLeaveTheWorkersRoom(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	require.NoError(t, db.SaveSchedule(t.Context(), store.Schedule{
		Name: "nightly", Rule: store.Every(time.Hour), Job: "mail", Queue: store.DefaultQueue, Args: []byte(`{}`), MaxAttempts: 1,
	}, "ann"))
	_, err := db.Enqueue(t.Context(), newRuns(1)...)
	require.NoError(t, err)
	tx := hold(t, db, "schedules", "true")
	done := make(chan error, 8)
	for range cap(done) {
		go func() { done <- db.ChangeSchedule(t.Context(), "nightly", store.PauseSchedule, "ann") }()
	}
	worst := time.Duration(0)
	for len(done) == 0 { // until the first has given up
		began := lease.Elapsed()
		_, _ = claim(t, db, worker("a"), 1, time.Minute)
		worst = max(worst, lease.Elapsed()-began)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	for range cap(done) {
		t.Log(<-done) // given up, or done after the rollback
	}
	require.Less(t, worst, 3*time.Second, "a claim waits behind the changes of schedules")
}

// TestPool_OperatorsHaveFewConnections: at most eight, and none that stays ready for
// heartbeats.
func TestPool_OperatorsHaveFewConnections(t *testing.T) {
	t.Parallel()
	first := openStore(t, "")
	db, err := postgres.Open(t.Context(), first.url, postgres.Config{Schema: first.schema, Operators: true})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	done := make(chan error, 20)
	for range cap(done) {
		go func() {
			_, err := db.Runs(t.Context(), store.Filter{})
			done <- err
		}()
	}
	for range cap(done) {
		require.NoError(t, <-done)
	}
	for _, pool := range db.Pools() {
		switch pool.Name {
		case "general", "operate":
			require.Equal(t, 3, pool.Max, pool.Name)
		case "engine":
			require.Equal(t, 2, pool.Max)
		default:
			require.Zero(t, pool.Used+pool.Idle, pool.Name)
		}
	}
}

// The server, or something before it, closes connections that are idle. Over TCP that is
// seen only after a statement was written, which then cannot be repeated blindly.
func TestPool_NoCallFailsOverAConnectionThatTheServerHasClosed(t *testing.T) {
	t.Parallel()
	overTCP, _ := openCut(t, openURL(t, pgtest.Database(t), "closed"))
	require.NoError(t, overTCP.Touch(t.Context(), worker("w")))
	conn := connect(t, overTCP.url)
	closed := overTCP.count(t, conn, "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
	require.Positive(t, closed)
	<-time.After(1500 * time.Millisecond) // one that was used within the last second is not tried
	_, err := overTCP.Reclaim(t.Context(), store.ReclaimRequest{Limit: 1})
	require.NoError(t, err)
}
