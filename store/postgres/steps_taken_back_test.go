package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// A failover takes back that a run has begun to wait. Its worker settles its outcome again, so that
// the run is due in a century, and no wait says why.
func TestSend_ReleasesARunWhoseWaitWasTakenBack(t *testing.T) {
	t.Parallel()
	db := openURL(t, pgtest.Database(t), "durable")
	r, runs := claimMany(t, db, 1, false)
	before := pgtest.Keep(t, db.url, db.schema)
	holder := store.Holder{Run: runs[0].ID, Claim: r.Claim}
	_, err := db.BeginWait(t.Context(), store.NewWait{Holder: holder, Name: "approved", Kind: store.StepInput})
	require.NoError(t, err)
	before.SetBack(t)
	parked := store.Outcome{Kind: store.Snoozed, After: store.MaxDelay}
	require.Equal(t, repeated(store.Applied, 1), settled(t, db, lastOf(part(r, runs, false, parked), 1)))
	_, err = db.Send(t.Context(), store.NewInput{Run: holder.Run, Name: "approved", Value: []byte(`1`)})
	require.NoError(t, err)
	record, err := db.Run(t.Context(), holder.Run)
	require.NoError(t, err)
	require.Less(t, time.Until(record.DueAt), time.Minute)
}
