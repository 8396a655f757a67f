package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// hold locks rows of a table of the store, as an operator or a user's
// transaction may, until the transaction ends.
func hold(t *testing.T, store opened, table, where string, args ...any) pgx.Tx {
	t.Helper()
	tx, err := connect(t, store.url).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), fmt.Sprintf("select from %s.%s where %s for update", store.schema, table, where), args...)
	require.NoError(t, err)
	return tx
}

// claim claims what is due.
func claim(t *testing.T, store opened, w store.WorkerID, limit int, d time.Duration) (store.ClaimRequest, []store.ClaimedRun) {
	t.Helper()
	r, err := request(t.Context(), store, w, limit, d)
	require.NoError(t, err)
	runs, err := store.Claim(t.Context(), r)
	require.NoError(t, err)
	return r, runs
}

func TestClaimSkipsALockedRun(t *testing.T) {
	t.Parallel()
	store := openStore(t, "")
	receipts, err := store.Enqueue(t.Context(), newRuns(5)...)
	require.NoError(t, err)
	tx := hold(t, store, "runs", "id = $1", receipts[0].ID)
	// A caller that waited for the holder would wait forever.
	_, first := claim(t, store, worker("a"), 3, time.Minute)
	_, second := claim(t, store, worker("b"), 3, time.Minute)
	require.Len(t, first, 3)
	require.Len(t, second, 1)
	for _, run := range append(first, second...) {
		require.NotEqual(t, receipts[0].ID, run.ID)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	_, third := claim(t, store, worker("b"), 3, time.Minute)
	require.Len(t, third, 1)
	require.Equal(t, receipts[0].ID, third[0].ID)
	requireConsistent(t, store)
}

func TestSettleDefersALockedRun(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, err := db.Enqueue(t.Context(), newRuns(6)...)
	require.NoError(t, err)
	r, runs := claim(t, db, worker("a"), 5, time.Minute)
	other, others := claim(t, db, worker("b"), 1, time.Minute)
	s := settlement(r, append(runs, others...), store.Outcome{Kind: store.Success})
	s.Runs[1].Outcome = store.Outcome{Kind: store.Failure, Error: "again", After: time.Hour}
	s.Runs[2].Outcome.Result = []byte(`"bad \u0000"`)
	s.Runs[3].Outcome = store.Outcome{Kind: store.Death, Error: "bad \x00 text"}
	tx := hold(t, db, "runs", "id = $1", runs[0].ID)

	for _, want := range []store.Verdict{store.Applied, store.AlreadyApplied} {
		verdicts, err := db.Settle(t.Context(), []store.Settlement{s})
		require.NoError(t, err)
		require.Equal(t, []store.Verdict{store.Deferred, want, want, want, want, store.Rejected}, verdicts)
		renewed, err := db.Renew(t.Context(), []lease.ClaimID{r.Claim}, time.Minute)
		require.NoError(t, err)
		require.Len(t, renewed, 1, "the lease remains for the run that is deferred")
	}
	require.NoError(t, tx.Rollback(t.Context()))
	for _, last := range []store.Settlement{
		settlement(r, runs[:1], store.Outcome{Kind: store.Success}),
		settlement(other, others, store.Outcome{Kind: store.Success}),
	} {
		verdicts, err := db.Settle(t.Context(), []store.Settlement{last})
		require.NoError(t, err)
		require.Equal(t, []store.Verdict{store.Applied}, verdicts)
	}
	renewed, err := db.Renew(t.Context(), []lease.ClaimID{r.Claim, other.Claim}, time.Minute)
	require.NoError(t, err)
	require.Empty(t, renewed)
	requireConsistent(t, db)
}

// declared is a schedule in the store, due now.
func declared(t *testing.T, db opened) store.Schedule {
	t.Helper()
	schedule := store.Schedule{
		Name: "often", Rule: store.Rule{Every: store.Duration(time.Minute)}, Hash: "1",
		Job: "mail", Queue: store.DefaultQueue, Args: []byte("{}"), MaxAttempts: 1,
	}
	require.NoError(t, db.Declare(t.Context(), store.Declaration{Worker: worker("w"), Schedules: []store.Schedule{schedule}}))
	return schedule
}

func TestMaterializeRestsWhileADueScheduleIsHeld(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	declared(t, db)
	tx := hold(t, db, "schedules", "true")
	decide := func(now time.Time, _ store.Schedule) store.Decision {
		return store.Decision{NextAt: now.Add(time.Hour)}
	}
	done, err := db.Materialize(t.Context(), 10, decide)
	require.NoError(t, err)
	require.Zero(t, done.Due)
	require.GreaterOrEqual(t, done.Next, 100*time.Millisecond)
	require.NoError(t, tx.Rollback(t.Context()))
	done, err = db.Materialize(t.Context(), 10, decide)
	require.NoError(t, err)
	require.Equal(t, 1, done.Due)
	require.Greater(t, done.Next, time.Minute)
}

func TestMaterializerThatStopsKeepsNoOtherBusyForLong(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	declared(t, db)
	decide := func(now time.Time, _ store.Schedule) store.Decision {
		return store.Decision{NextAt: now.Add(time.Hour)}
	}
	_, err := db.Materialize(t.Context(), 10, func(now time.Time, s store.Schedule) store.Decision {
		busy, err := db.Materialize(t.Context(), 10, decide)
		require.NoError(t, err)
		require.True(t, busy.Busy)
		require.Eventually(t, func() bool {
			done, err := db.Materialize(t.Context(), 10, decide)
			return err == nil && !done.Busy && done.Due == 1
		}, 30*time.Second, 100*time.Millisecond)
		return decide(now, s)
	})
	require.Error(t, err)
}

func TestLeasesThatAreStuckHideNoOthers(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, err := db.Enqueue(t.Context(), newRuns(8)...)
	require.NoError(t, err)
	w := worker("w")
	var stuck []store.RunID
	for range 5 {
		_, runs := claim(t, db, w, 1, time.Minute)
		stuck = append(stuck, runs[0].ID)
	}
	for range 3 {
		claim(t, db, w, 1, 2*time.Minute) // expire later
	}
	db.shift(t, time.Hour)
	tx := hold(t, db, "runs", "id = any ($1)", stuck)
	done, err := db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 2})
	require.NoError(t, err)
	require.Len(t, done.Runs, 2)
	require.Equal(t, 2, done.Leases, "there may be more")
	done, err = db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 2})
	require.NoError(t, err)
	require.Len(t, done.Runs, 1)
	require.Equal(t, 1, done.Leases)
	done, err = db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 2})
	require.NoError(t, err)
	require.Zero(t, done.Leases)
	require.False(t, done.Now.IsZero())
	require.NoError(t, tx.Rollback(t.Context()))
	done, err = db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
	require.NoError(t, err)
	require.Len(t, done.Runs, 5)
	require.Equal(t, 5, done.Leases)
	requireConsistent(t, db)
}
