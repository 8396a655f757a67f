package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// soon is how soon the claims of these tests announce the next one.
const soon = 10 * time.Millisecond

// joining claims a run, and settles it while the claim of the other one is under way.
func joining(t *testing.T, db opened, one, other store.NewRun) (r [2]store.ClaimRequest, runs [2][]store.ClaimedRun, settled, claimed error) {
	t.Helper()
	w := worker("w")
	for i, run := range []store.NewRun{one, other} {
		_, err := db.Enqueue(t.Context(), run)
		require.NoError(t, err)
		r[i], err = request(t.Context(), db, w, 1, time.Minute)
		require.NoError(t, err)
		r[i].Next = soon
	}
	var err error
	runs[0], err = db.Claim(t.Context(), r[0])
	require.NoError(t, err)
	require.Len(t, runs[0], 1)
	done := make(chan error)
	go func() { done <- succeed(t, db, r[0], runs[0]) }()
	<-time.After(soon / 2) // as long as a worker pauses; if it becomes longer, they are sent apart
	runs[1], claimed = db.Claim(t.Context(), r[1])
	return r, runs, <-done, claimed
}

func succeed(t *testing.T, db opened, r store.ClaimRequest, runs []store.ClaimedRun) error {
	_, err := db.Settle(t.Context(), []store.Settlement{settlement(r, runs, store.Outcome{Kind: store.Success})})
	return err
}

// A worker that claims again soon settles in the transaction of that claim.
func TestSettle_JoinsTheNextClaim(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	require.Eventually(t, func() bool {
		r, runs, settled, claimed := joining(t, db, newRun(), newRun())
		require.NoError(t, settled)
		require.NoError(t, claimed)
		require.Len(t, runs[1], 1)
		same := db.count(t, conn, "select count(*) from %s.runs a join %s.runs b on a.xmin::text = b.xmin::text where a.id = $1 and b.id = $2 and a.state = 2 and b.state = 1",
			runs[0][0].ID, runs[1][0].ID)
		require.NoError(t, succeed(t, db, r[1], runs[1]))
		return same == 1
	}, time.Minute, time.Millisecond)
	requireConsistent(t, db)
	requireNoLease(t, db)
}

// So does a worker whose claims skip a run that another transaction holds.
func TestSettle_JoinsAClaimThatSkipsLockedRows(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	receipts, err := db.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	tx := hold(t, db, "runs", "id = $1", receipts[0].ID)
	_, none := claim(t, db, worker("w"), 1, time.Minute)
	require.Empty(t, none)
	joined := false
	for began := lease.Elapsed(); !joined && lease.Elapsed()-began < 8*time.Second; { // for longer, claims would not skip it
		r, runs, settled, claimed := joining(t, db, newRun(), newRun())
		require.NoError(t, settled)
		require.NoError(t, claimed)
		require.Len(t, runs[1], 1)
		joined = db.count(t, conn, "select count(*) from %s.runs a join %s.runs b on a.xmin::text = b.xmin::text where a.id = $1 and b.id = $2 and a.state = 2 and b.state = 1",
			runs[0][0].ID, runs[1][0].ID) == 1
		require.NoError(t, succeed(t, db, r[1], runs[1]))
	}
	require.True(t, joined)
	require.NoError(t, tx.Rollback(t.Context()))
}

// If the database refuses a claim, or a settle that has joined it, the other one succeeds.
func TestSettle_OneThatIsRefusedKeepsNoClaimThatItHasJoined(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]string{"claim": "1", "settle": "2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openStore(t, "")
			conn := connect(t, db.url)
			db.refuse(t, conn, "update", "runs", "old.state = new.state - 1 and new.state = "+state+" and 'bad' = any(new.tags)")
			one, other := newRun(), newRun()
			for range 20 {
				one.ID, other.ID = store.NewRunID(), store.NewRunID()
				if name == "claim" {
					other.Tags = []string{"bad"}
				} else {
					one.Tags = []string{"bad"}
				}
				r, runs, settled, claimed := joining(t, db, one, other)
				if name == "claim" {
					require.ErrorContains(t, claimed, "refused by a test")
					require.NoError(t, settled)
					_, err := conn.Exec(t.Context(), "update "+db.schema+".runs set tags = null where id = $1", other.ID)
					require.NoError(t, err)
					runs[1], claimed = db.Claim(t.Context(), r[1])
				}
				require.NoError(t, claimed)
				require.Len(t, runs[1], 1)
				if name == "settle" {
					require.ErrorContains(t, settled, "refused by a test")
					_, err := conn.Exec(t.Context(), "update "+db.schema+".runs set tags = null where id = $1", one.ID)
					require.NoError(t, err)
					require.NoError(t, succeed(t, db, r[0], runs[0]))
				}
				require.NoError(t, succeed(t, db, r[1], runs[1]))
			}
			requireConsistent(t, db)
			requireNoLease(t, db)
		})
	}
}

// Each of the two is found, once, whichever message the connection is lost with.
func TestSettle_JoinedAndCutInEveryMessage(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	cutOff, c := openCut(t, db)
	w := worker("w")
	c.sweep(t, func(n int64) {
		var r [2]store.ClaimRequest
		for i := range r {
			_, err := db.Enqueue(t.Context(), newRun())
			require.NoError(t, err)
			r[i], err = request(t.Context(), db, w, 1, time.Minute)
			require.NoError(t, err)
		}
		r[0].Next = soon
		c.next.Store(-1)
		first, err := cutOff.Claim(t.Context(), r[0])
		require.NoError(t, err)
		c.next.Store(n)
		done := make(chan error)
		go func() {
			var err error
			for range 100 { // until the server has seen that the connection is gone
				var verdicts []store.Verdict
				verdicts, err = cutOff.Settle(t.Context(), []store.Settlement{settlement(r[0], first, store.Outcome{Kind: store.Success})})
				if err == nil && verdicts[0] != store.Deferred {
					break
				}
			}
			done <- err
		}()
		var second []store.ClaimedRun
		for try := 0; ; try++ {
			second, err = cutOff.Claim(t.Context(), r[1])
			if err == nil {
				break
			}
			require.Less(t, try, 100, "cut at %d: %v", n, err)
		}
		require.Len(t, second, 1)
		require.NoError(t, <-done)
		require.NoError(t, succeed(t, db, r[1], second))
	})
	requireConsistent(t, db)
	requireNoLease(t, db)
}
