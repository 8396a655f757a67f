package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// limited is a store with limits, for admissions by hand.
type limited struct {
	opened

	t      *testing.T
	worker store.WorkerID
}

func openLimited(t *testing.T, limits ...store.Limit) *limited {
	t.Helper()
	l := &limited{opened: openStore(t, ""), t: t, worker: worker("a")}
	require.NoError(t, l.Declare(t.Context(), store.Declaration{Worker: l.worker, Limits: limits}))
	return l
}

func semaphore(name string, n int) store.Limit {
	return store.Limit{Name: name, Kind: store.LimitSemaphore, Max: n}
}

func limitedRun(uses ...store.LimitUse) store.NewRun {
	run := newRun()
	run.Limits = uses
	return run
}

func use(limit, key string) store.LimitUse { return store.LimitUse{Limit: limit, Key: key} }

func (l *limited) enqueue(runs ...store.NewRun) []store.RunID {
	l.t.Helper()
	receipts, err := l.Enqueue(l.t.Context(), runs...)
	require.NoError(l.t, err)
	ids := make([]store.RunID, len(runs))
	for i := range receipts {
		ids[i] = receipts[i].ID
	}
	return ids
}

// admission asks for what the heads show.
func (l *limited) admission(limit int) store.ClaimRequest {
	l.t.Helper()
	heads, err := l.Heads(l.t.Context(), serves)
	require.NoError(l.t, err)
	r := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: l.worker, Duration: time.Minute, Limit: limit}
	for _, h := range heads {
		if h.Line != 0 && h.Waiting {
			r.Admissions = append(r.Admissions, store.Admission{Line: h.Line, Take: limit})
		}
		if h.Line != 0 && h.Lane > 0 {
			r.Lanes = append(r.Lanes, h.Lane)
		}
	}
	return r
}

func (l *limited) admit(limit int) (store.ClaimRequest, []store.ClaimedRun) {
	l.t.Helper()
	r := l.admission(limit)
	if len(r.Admissions) == 0 {
		return r, nil
	}
	runs, err := l.Claim(l.t.Context(), r)
	require.NoError(l.t, err)
	return r, runs
}

func (l *limited) settle(r store.ClaimRequest, runs []store.ClaimedRun, outcome store.Outcome) []store.Verdict {
	l.t.Helper()
	s := settlement(r, runs, outcome)
	s.Limited, s.Claimed = true, len(runs)
	verdicts, err := l.Settle(l.t.Context(), []store.Settlement{s})
	require.NoError(l.t, err)
	return verdicts
}

// counts are the rows of tables.
func (l *limited) count(query string, args ...any) (n int) {
	l.t.Helper()
	require.NoError(l.t, l.conn().QueryRow(context.WithoutCancel(l.t.Context()), query, args...).Scan(&n))
	return n
}

func (l *limited) conn() *pgx.Conn {
	l.t.Helper()
	conn := connect(l.t, plainURL(l.t, l.opened))
	_, err := conn.Exec(l.t.Context(), "set search_path = "+l.schema)
	require.NoError(l.t, err)
	return conn
}

func idsOf(runs []store.ClaimedRun) (ids []store.RunID) {
	for i := range runs {
		ids = append(ids, runs[i].ID)
	}
	return ids
}

func TestAdmissionAdmitsUpToTheLimit(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("tenant", 2))
	var runs []store.NewRun
	for range 5 {
		runs = append(runs, limitedRun(use("Tenant", "Acme")))
	}
	ids := l.enqueue(append(runs, limitedRun(use("tenant", "other")))...)
	require.Zero(t, l.count("select count(*) from ready"))
	require.Equal(t, 6, l.count("select count(*) from waiting"))

	r, got := l.admit(10)
	require.ElementsMatch(t, []store.RunID{ids[0], ids[1], ids[5]}, idsOf(got))
	require.Equal(t, 3, l.count("select sum(k) from permits"))
	again, err := l.Claim(t.Context(), r)
	require.NoError(t, err)
	require.ElementsMatch(t, idsOf(got), idsOf(again), "asked twice")
	_, none := l.admit(10)
	require.Empty(t, none)
	require.Zero(t, l.count("select count(*) from turns where gate in (select gate from permits)"), "a turn is at a full gate")

	require.Equal(t, []store.Verdict{store.Applied, store.Applied, store.Applied}, l.settle(r, got, store.Outcome{Kind: store.Success}))
	require.Zero(t, l.count("select count(*) from permits"))
	require.Zero(t, l.count("select count(*) from leases"))
	require.Equal(t, []store.Verdict{store.AlreadyApplied, store.AlreadyApplied, store.AlreadyApplied}, l.settle(r, got, store.Outcome{Kind: store.Success}))

	r, got = l.admit(10)
	require.Equal(t, ids[2:4], idsOf(got))
	l.settle(r, got, store.Outcome{Kind: store.Failure, After: time.Hour, Error: "later"})
	require.Equal(t, 2, l.count("select count(*) from waiting where due_at > now()"))
	require.Equal(t, 1, l.count("select count(*) from turns where due_at > now()"))
	_, got = l.admit(10)
	require.Equal(t, ids[4:5], idsOf(got))
}

func TestReclaimReleasesPermits(t *testing.T) {
	t.Parallel()
	l := openLimited(t, semaphore("one", 1))
	ids := l.enqueue(limitedRun(use("one", "")), limitedRun(use("one", "")))
	r, got := l.admit(5)
	require.Equal(t, ids[:1], idsOf(got))
	l.shift(t, 2*time.Minute)
	result, err := l.Reclaim(t.Context(), store.ReclaimRequest{Limit: 10, MaxCrashes: 5})
	require.NoError(t, err)
	require.Len(t, result.Runs, 1)
	require.Zero(t, l.count("select count(*) from permits"))
	require.Equal(t, 2, l.count("select count(*) from waiting"))

	second, got2 := l.admit(5)
	require.Len(t, got2, 1)
	require.Equal(t, []store.Verdict{store.Rejected}, l.settle(r, got, store.Outcome{Kind: store.Success}), "a zombie")
	require.Equal(t, 1, l.count("select count(*) from permits where owner = $1", uuid.UUID(second.Claim)))
	l.settle(second, got2, store.Outcome{Kind: store.Success})
	third, got3 := l.admit(5)
	l.settle(third, got3, store.Outcome{Kind: store.Success})
	require.Zero(t, l.count("select count(*) from permits"))
	l.admit(5)
	require.Zero(t, l.count("select count(*) from turns"))
}

// TestAnEnqueueOfManyIsNotCompiled: the server compiles a statement whose estimated cost is
// above a bound, which takes it a second. Enqueues have no guard against that.
func TestAnEnqueueOfManyIsNotCompiled(t *testing.T) {
	t.Parallel()
	const runs, compiledFrom = 5000, 100_000
	l := openLimited(t, semaphore("doc", 1))
	conn := l.conn()
	array := regexp.MustCompile(`\$\d+::([a-z]+)\[\]`)
	for name, statement := range map[string]string{
		"runs": queries.EnqueueRuns, "alike": queries.EnqueueAlike, "new": queries.EnqueueNew, "limited": queries.EnqueueLimited,
	} {
		statement = array.ReplaceAllString(asSent(t, statement, ""), fmt.Sprintf("array_fill(null::$1, array[%d])", runs))
		statement = regexp.MustCompile(`\$\d+::`).ReplaceAllString(statement, "null::")
		var plan []struct {
			Plan struct {
				Cost float64 `json:"Total Cost"`
			} `json:"Plan"`
		}
		var text []byte
		require.NoError(t, conn.QueryRow(t.Context(), "explain (format json) "+statement).Scan(&text), name)
		require.NoError(t, json.Unmarshal(text, &plan))
		require.Positive(t, plan[0].Plan.Cost)
		require.Less(t, plan[0].Plan.Cost, float64(compiledFrom), "%s, %d runs", name, runs)
	}
}
