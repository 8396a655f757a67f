package postgres_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// A lease expires while its worker lives, and a transaction of its handler holds
// the row of one of its runs. The others are taken over; the worker is notified.
func TestLeaseThatWasTakenInPartIsNotRenewed(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]int{"alone": 0, "with many": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openStore(t, "")
			conn := connect(t, db.url)
			receipts, err := db.Enqueue(t.Context(), newRuns(3)...)
			require.NoError(t, err)
			r, runs := claim(t, db, worker("a"), 3, 30*time.Second)
			require.Len(t, runs, 3)
			asked := []lease.ClaimID{r.Claim}
			for range others {
				asked = append(asked, db.lease(t, conn, time.Hour))
			}
			renewed, err := db.Renew(t.Context(), asked, 30*time.Second)
			require.NoError(t, err)
			require.Len(t, renewed, len(asked))
			db.shift(t, 31*time.Second)
			renewed, err = db.Renew(t.Context(), asked, 30*time.Second)
			require.NoError(t, err)
			require.Len(t, renewed, len(asked), "no one has taken any of it over")
			db.shift(t, 31*time.Second)

			tx := hold(t, db, "runs", "id = $1", receipts[0].ID)
			done, err := db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 1000})
			require.NoError(t, err)
			require.Len(t, done.Runs, 2)
			require.Equal(t, 1, db.count(t, conn, "select count(*) from %s.leases where claim_id = $1", uuid.UUID(r.Claim)))
			renewed, err = db.Renew(t.Context(), asked, 30*time.Second)
			require.NoError(t, err)
			require.Empty(t, renewed)

			require.NoError(t, tx.Rollback(t.Context()))
			verdicts, err := db.Settle(t.Context(), []store.Settlement{settlement(r, runs, store.Outcome{Kind: store.Success})})
			require.NoError(t, err)
			require.ElementsMatch(t, []store.Verdict{store.Applied, store.Rejected, store.Rejected}, verdicts,
				"what was held is still its worker's to end")
			requireConsistent(t, db)
		})
	}
}

// A lease whose runs are all held is whole, and its worker may go on.
func TestLeaseOfWhichNothingWasTakenIsRenewed(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	receipts, err := db.Enqueue(t.Context(), newRuns(2)...)
	require.NoError(t, err)
	r, _ := claim(t, db, worker("a"), 2, 30*time.Second)
	db.shift(t, 31*time.Second)
	tx := hold(t, db, "runs", "id = any ($1)", []uuid.UUID{receipts[0].ID, receipts[1].ID})
	done, err := db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
	require.NoError(t, err)
	require.Empty(t, done.Runs)
	renewed, err := db.Renew(t.Context(), []lease.ClaimID{r.Claim}, 30*time.Second)
	require.NoError(t, err)
	require.Equal(t, []lease.ClaimID{r.Claim}, renewed)
	require.NoError(t, tx.Rollback(t.Context()))
}

// What keeps leases from being renewed together loses none of them.
func TestLeasesAreRenewedEachByItselfWhereTogetherIsRefused(t *testing.T) {
	t.Parallel()
	for name, follows := range map[string]bool{"never together": false, "together before": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openStore(t, "")
			conn := connect(t, db.url)
			var claims []lease.ClaimID
			for range 100 {
				claims = append(claims, db.lease(t, conn, time.Minute))
			}
			if follows {
				renewed, err := db.Renew(t.Context(), claims, time.Minute)
				require.NoError(t, err)
				require.Len(t, renewed, len(claims))
			}
			db.refuse(t, conn, "update", "beats", "true")
			db.exec(t, conn, "create trigger refuse_insert before insert on %s.beats for each row execute function %s.refuse()")
			renewed, err := db.Renew(t.Context(), claims, time.Hour)
			require.NoError(t, err)
			require.ElementsMatch(t, claims, renewed)
			require.Equal(t, len(claims), db.count(t, conn, "select count(*) from %s.leases where beat is null and expires_at > now() + interval '50 min'"))
			db.exec(t, conn, "drop trigger refuse_insert on %s.beats")
			db.exec(t, conn, "drop trigger refuse_update on %s.beats")
			renewed, err = db.Renew(t.Context(), claims, time.Hour)
			require.NoError(t, err)
			require.ElementsMatch(t, claims, renewed)
			require.Equal(t, len(claims), db.count(t, conn, "select count(*) from %s.leases where beat is not null"), "together again")
		})
	}
}
