package postgres_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

// A settle of all runs of a limited claim ends none that is no longer the claim's, nor one
// that has ended, and frees all of its places.
func TestSettle_AWholeClaimEndsOnlyItsOwnRuns(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 3))
	l.enqueue(bounded(3, use("doc", "a"))...)
	r, runs := l.admit(3)
	require.Len(t, runs, 3)
	other := uuid.New()
	l.exec("update runs set claim_id = '" + other.String() + "' where id = '" + runs[1].ID.String() + "'")
	l.exec("update runs set state = 2, finished_at = '2020-01-01' where id = '" + runs[2].ID.String() + "'")
	require.Equal(t, []store.Verdict{store.Applied, store.Rejected, store.AlreadyApplied}, l.settle(r, runs, store.Outcome{Kind: store.Success}))
	require.Equal(t, 1, l.count("select count(*) from runs where state = 1 and claim_id = $1", other))
	require.Equal(t, 1, l.count("select count(*) from runs where state = 2 and finished_at = '2020-01-01'"))
	require.Zero(t, l.count("select count(*) from permits"))
	require.Zero(t, l.count("select count(*) from leases"))
}

// A claim whose lease a reclaim has locked is settled after it: too late.
func TestSettle_AWholeClaimWaitsForAReclaim(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("doc", 1))
	l.enqueue(bounded(1, use("doc", "a"))...)
	r, runs := l.admit(1)
	require.Len(t, runs, 1)
	reclaim, err := l.conn().Begin(t.Context())
	require.NoError(t, err)
	_, err = reclaim.Exec(t.Context(), "select from leases for update")
	require.NoError(t, err)
	done := make(chan []store.Verdict, 1)
	go func() { done <- l.settle(r, runs, store.Outcome{Kind: store.Success}) }()
	select {
	case verdicts := <-done:
		t.Errorf("settled: %v", verdicts)
	case <-time.After(100 * time.Millisecond):
	}
	_, err = reclaim.Exec(t.Context(), "with gone as (delete from leases) update runs set state = 0, claim_id = null")
	require.NoError(t, err)
	require.NoError(t, reclaim.Commit(t.Context()))
	require.Equal(t, []store.Verdict{store.Rejected}, <-done)
	require.Equal(t, 1, l.count("select count(*) from runs where state = 0"))
}
