package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// withoutLease counts the running runs that no expiry would find.
func withoutLease(t *testing.T, db opened) string {
	t.Helper()
	return pgtest.Ask(t, db.url, fmt.Sprintf(`select count(*)::text from %[1]s.runs r where r.state = 1
		and not exists (select from %[1]s.leases l where l.claim_id = r.claim_id)`, db.schema))
}

// A failover takes settles back that a worker knows to be done, before the last settle of
// their claim: the claim keeps its lease, so that the runs are found when it expires.
func TestSettle_NoRunIsLeftWithoutALeaseWhenCommitsWereTakenBack(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]struct {
		runs    int
		limited bool
		held    bool
		rest    store.Outcome
	}{
		"the last few succeed":          {runs: 10, rest: store.Outcome{Kind: store.Success}},
		"many succeed":                  {runs: 50, rest: store.Outcome{Kind: store.Success}},
		"the rest fails":                {runs: 10, rest: store.Outcome{Kind: store.Failure, Error: "x"}},
		"the rest is handed back":       {runs: 10, rest: store.Outcome{Kind: store.HandedBack}},
		"the database refuses the data": {runs: 10, rest: store.Outcome{Kind: store.Death, Error: "bad \x00 text"}},
		"a run is locked meanwhile":     {runs: 10, held: true, rest: store.Outcome{Kind: store.Success}},
		"limited, the rest succeeds":    {runs: 10, limited: true, rest: store.Outcome{Kind: store.Success}},
		"limited, the rest fails":       {runs: 10, limited: true, rest: store.Outcome{Kind: store.Failure, Error: "x"}},
		"limited, a run is locked":      {runs: 10, limited: true, held: true, rest: store.Outcome{Kind: store.Success}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openURL(t, pgtest.Database(t), "durable")
			r, runs := claimMany(t, db, way.runs, way.limited)
			before := pgtest.Keep(t, db.url, db.schema)
			first, last := part(r, runs[:3], way.limited, store.Outcome{Kind: store.Success}), part(r, runs[3:], way.limited, way.rest)
			last.Last, last.Claimed = true, len(runs)
			require.Equal(t, repeated(store.Applied, 3), settled(t, db, first))
			before.SetBack(t)
			if way.held {
				settleAround(t, db, last)
			} else {
				require.Equal(t, repeated(store.Applied, len(last.Runs)), settled(t, db, last))
			}
			require.Equal(t, "0", withoutLease(t, db))
			require.Equal(t, "3", pgtest.Ask(t, db.url, "select count(*)::text from durable.runs where state = 1"))
			if way.limited {
				require.Equal(t, "3", pgtest.Ask(t, db.url, "select sum(k)::text from durable.permits"), "what is running keeps its places")
			}
			require.Equal(t, repeated(store.Applied, 3), settled(t, db, lastOf(first, len(runs))), "the worker settles them again")
			require.Equal(t, "0", pgtest.Ask(t, db.url, "select count(*)::text from durable.leases"))
			require.Equal(t, "0", pgtest.Ask(t, db.url, "select count(*)::text from durable.permits"))
		})
	}
}

// claimMany claims so many runs together.
func claimMany(t *testing.T, db opened, n int, isLimited bool) (store.ClaimRequest, []store.ClaimedRun) {
	t.Helper()
	l := &limited{opened: db, t: t, worker: worker("a")}
	if isLimited {
		require.NoError(t, db.Declare(t.Context(), store.Declaration{Worker: l.worker, Limits: []store.Limit{semaphore("doc", n)}}))
		l.enqueue(bounded(n, use("doc", "a"))...)
		r, runs := l.admit(n)
		require.Len(t, runs, n)
		return r, runs
	}
	l.enqueue(newRuns(n)...)
	r, runs := claim(t, db, l.worker, n, time.Minute)
	require.Len(t, runs, n)
	return r, runs
}

// part is the settlement of some runs of a claim.
func part(r store.ClaimRequest, runs []store.ClaimedRun, limited bool, outcome store.Outcome) store.Settlement {
	s := settlement(r, runs, outcome)
	s.Last, s.Limited = false, limited
	return s
}

func lastOf(s store.Settlement, claimed int) store.Settlement {
	s.Last, s.Claimed = true, claimed
	return s
}

func settled(t *testing.T, db opened, s store.Settlement) []store.Verdict {
	t.Helper()
	verdicts, err := db.Settle(t.Context(), []store.Settlement{s})
	require.NoError(t, err)
	return verdicts
}

func repeated(verdict store.Verdict, n int) []store.Verdict {
	all := make([]store.Verdict, n)
	for i := range all {
		all[i] = verdict
	}
	return all
}

// settleAround settles while a transaction holds one of the runs, and then that one.
func settleAround(t *testing.T, db opened, last store.Settlement) {
	t.Helper()
	tx := hold(t, db, "runs", "id = $1", last.Runs[0].ID)
	want := repeated(store.Applied, len(last.Runs))
	want[0] = store.Deferred
	require.Equal(t, want, settled(t, db, last))
	require.NoError(t, tx.Rollback(t.Context()))
	last.Runs = last.Runs[:1]
	require.Equal(t, repeated(store.Applied, 1), settled(t, db, last))
}
