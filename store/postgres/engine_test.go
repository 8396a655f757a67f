package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

var job = durable.NewJob[map[string]string]("mail")

func newRun(options ...durable.Option) store.NewRun {
	return job.New(map[string]string{"to": "someone@example.org"}, options...)
}

func newRuns(n int, options ...durable.Option) []store.NewRun {
	runs := make([]store.NewRun, n)
	for i := range runs {
		runs[i] = newRun(options...)
	}
	return runs
}

var serves = store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}}

// request asks for all that is due in the lanes the heads show.
func request(ctx context.Context, db store.Store, worker store.WorkerID, limit int, d time.Duration) (store.ClaimRequest, error) {
	heads, err := db.Heads(ctx, serves)
	r := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: worker, Duration: d, Limit: limit}
	for _, h := range heads {
		if h.Waiting {
			r.Steps = append(r.Steps, store.Step{Lane: h.Lane, Take: limit})
		}
	}
	return r, err
}

func settlement(r store.ClaimRequest, runs []store.ClaimedRun, outcome store.Outcome) store.Settlement {
	s := store.Settlement{Claim: r.Claim, Worker: r.Worker, Last: true}
	for _, run := range runs {
		s.Runs = append(s.Runs, store.Settled{ID: run.ID, Outcome: outcome})
	}
	return s
}

func worker(name string) store.WorkerID { return store.WorkerID{Name: name, Instance: uuid.New()} }

// withoutAutovacuum keeps the server from touching the hot tables by itself.
func withoutAutovacuum(t *testing.T, store opened) {
	t.Helper()
	conn := connect(t, store.url)
	for _, table := range []string{"runs", "ready", "leases", "attempts", "problems", "progress", "steps", "inputs", "notices", "unique_keys"} {
		_, err := conn.Exec(t.Context(), fmt.Sprintf("alter table %s.%s set (autovacuum_enabled = off)", store.schema, table))
		require.NoError(t, err)
	}
}

func TestUpdatesOfRunsAreHOT(t *testing.T) {
	t.Parallel()
	// A server of its own: pages keep old versions while others' snapshots are
	// held, an ANALYZE's among them.
	db := openURL(t, pgtest.StartPrivate(t, pgtest.Options{}).URL(), "durable")
	withoutAutovacuum(t, db)
	const total = 20_000
	for range total / 1000 {
		_, err := db.Enqueue(t.Context(), newRuns(1000)...)
		require.NoError(t, err)
	}
	w := worker("w")
	for done := 0; done < total; {
		r, err := request(t.Context(), db, w, 500, time.Minute)
		require.NoError(t, err)
		runs, err := db.Claim(t.Context(), r)
		require.NoError(t, err)
		require.NotEmpty(t, runs)
		_, err = db.Settle(t.Context(), []store.Settlement{settlement(r, runs, store.Outcome{Kind: store.Success})})
		require.NoError(t, err)
		done += len(runs)
	}
	db.Close() // the sessions report what they counted when they end
	conn := connect(t, db.url)
	var updated, hot float64
	require.Eventually(t, func() bool {
		err := conn.QueryRow(t.Context(), "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'runs'").Scan(&updated, &hot)
		return err == nil && updated >= 2*total
	}, 20*time.Second, 50*time.Millisecond)
	require.GreaterOrEqual(t, hot/updated, 0.98, "%v of %v updates of runs were HOT", hot, updated)
}

func TestPlansOfAColdDatabaseUseIndexes(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held=%t", held), func(t *testing.T) {
			t.Parallel()
			testColdPlans(t, held)
		})
	}
}

// testColdPlans makes its claims go around the row of a run that is held, or
// not.
func testColdPlans(t *testing.T, held bool) {
	t.Helper()
	db := openURL(t, pgtest.Database(t)+"&plan_cache_mode=force_generic_plan", "durable")
	conn := connect(t, db.url)
	withoutAutovacuum(t, db)
	cycle := func(limit int) {
		r, err := request(t.Context(), db, worker("w"), limit, time.Minute)
		require.NoError(t, err)
		runs, err := db.Claim(t.Context(), r)
		require.NoError(t, err)
		_, err = db.Settle(t.Context(), []store.Settlement{settlement(r, runs, store.Outcome{Kind: store.Failure, Error: "x", After: time.Hour})})
		require.NoError(t, err)
		_, err = db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
		require.NoError(t, err)
	}
	if held {
		receipts, err := db.Enqueue(t.Context(), newRun())
		require.NoError(t, err)
		hold(t, db, "runs", "id = $1", receipts[0].ID)
	}
	cycle(1) // plans are made on empty tables, and kept
	for range 10 {
		_, err := db.Enqueue(t.Context(), newRuns(5000)...)
		require.NoError(t, err)
	}
	for range 10 {
		cycle(100)
	}
	db.Close()
	scans := func() (n int64) {
		require.NoError(t, conn.QueryRow(t.Context(), "select coalesce(sum(seq_tup_read), 0) from pg_stat_user_tables where relname in ('runs', 'ready', 'leases')").Scan(&n))
		return n
	}
	require.Eventually(t, func() bool {
		var updates int64
		err := conn.QueryRow(t.Context(), "select n_tup_upd from pg_stat_user_tables where relname = 'runs'").Scan(&updates)
		return err == nil && updates >= 2000
	}, 20*time.Second, 50*time.Millisecond)
	require.Zero(t, scans(), "rows read by sequential scans")
}

func TestClaimRepeatedAfterItsAnswerWasLost(t *testing.T) {
	t.Parallel()
	store := openStore(t, "")
	_, err := store.Enqueue(t.Context(), newRuns(5)...)
	require.NoError(t, err)
	w := worker("w")
	r, err := request(t.Context(), store, w, 3, time.Minute)
	require.NoError(t, err)
	first, err := store.Claim(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, first, 3)
	again, err := store.Claim(t.Context(), r) // more is due: the lease's key refuses a second one
	require.NoError(t, err)
	require.Equal(t, first, again)
	rest, err := request(t.Context(), store, w, 100, time.Minute)
	require.NoError(t, err)
	_, err = store.Claim(t.Context(), rest)
	require.NoError(t, err)
	again, err = store.Claim(t.Context(), r) // nothing is due
	require.NoError(t, err)
	require.Equal(t, first, again)
}

func TestOutcomeThatTheDatabaseRefusesHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, err := db.Enqueue(t.Context(), newRuns(3)...)
	require.NoError(t, err)
	r, err := request(t.Context(), db, worker("w"), 10, time.Minute)
	require.NoError(t, err)
	runs, err := db.Claim(t.Context(), r)
	require.NoError(t, err)
	s := settlement(r, runs, store.Outcome{Kind: store.Success})
	s.Runs[0].Outcome = store.Outcome{Kind: store.Death, Error: "bad \x00 text"}
	s.Runs[1].Outcome.Result = []byte(`{"unterminated`)
	verdicts, err := db.Settle(t.Context(), []store.Settlement{s})
	require.NoError(t, err)
	require.Equal(t, []store.Verdict{store.Applied, store.Applied, store.Applied}, verdicts)
	dead, err := db.Run(t.Context(), runs[0].ID)
	require.NoError(t, err)
	require.Equal(t, "(could not be stored)", *dead.Error)
	odd, err := db.Run(t.Context(), runs[1].ID)
	require.NoError(t, err)
	require.JSONEq(t, `"(could not be stored)"`, string(odd.Result))
	renewed, err := db.Renew(t.Context(), []lease.ClaimID{r.Claim}, time.Minute)
	require.NoError(t, err)
	require.Empty(t, renewed, "the lease has ended")
}

func TestLaneNumbersThatNoLongerStandForTheirLane(t *testing.T) {
	t.Parallel()
	store := openStore(t, "")
	_, err := store.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	conn := connect(t, store.url)
	_, err = conn.Exec(t.Context(), fmt.Sprintf("truncate %[1]s.lanes, %[1]s.runs, %[1]s.ready restart identity; insert into %[1]s.lanes (queue, job, priority) values ('other', 'other', 0)", store.schema))
	require.NoError(t, err)
	receipts, err := store.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	record, err := store.Run(t.Context(), receipts[0].ID)
	require.NoError(t, err)
	require.Equal(t, "mail", record.Job)
}

func TestLeasesGrantedBeforeTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, err := db.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	r, err := request(t.Context(), db, worker("w"), 1, time.Minute)
	require.NoError(t, err)
	_, err = db.Claim(t.Context(), r)
	require.NoError(t, err)
	db.shift(t, -10*time.Hour)
	_, err = db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 10}) // notices
	require.NoError(t, err)
	db.shift(t, time.Minute)
	done, err := db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Limit: 10})
	require.NoError(t, err)
	require.Len(t, done.Runs, 1)
}

// Claimers that crash, settle late, in part and twice, beside reclaimers.
func TestWorkersThatCrashBesideEachOther(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	const total = 6000
	for range total / 1000 {
		_, err := db.Enqueue(t.Context(), newRuns(1000)...)
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	enough := time.Now().Add(3 * time.Second)
	var workers sync.WaitGroup
	var refused, reclaimed atomic.Int64
	var mu sync.Mutex
	won := map[store.RunID]int{}
	for i := range 4 {
		workers.Go(func() {
			w := worker(fmt.Sprintf("w%d", i))
			for ctx.Err() == nil && (refused.Load() == 0 || time.Now().Before(enough)) {
				work(t, db, w, &mu, won, &refused)
				done, err := db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 1000, Limit: 10})
				if err != nil {
					t.Error(err)
				}
				reclaimed.Add(int64(len(done.Runs)))
			}
		})
	}
	workers.Wait()
	for id, times := range won {
		require.Equal(t, 1, times, "run %s was settled more than once", id)
	}
	requireConsistent(t, db)
	t.Logf("settled %d, reclaimed %d, refused %d", len(won), reclaimed.Load(), refused.Load())
	require.NotZero(t, refused.Load())
}

// work is one claim of a worker that misbehaves.
func work(t *testing.T, db opened, w store.WorkerID, mu *sync.Mutex, won map[store.RunID]int, refused *atomic.Int64) {
	r, err := request(t.Context(), db, w, 50, 30*time.Millisecond)
	if err != nil {
		t.Error(err)
		return
	}
	runs, err := db.Claim(t.Context(), r)
	if err != nil {
		t.Error(err)
		return
	}
	if rand.IntN(4) == 0 {
		return // crash
	}
	<-time.After(time.Duration(rand.IntN(40)) * time.Millisecond) // leases last 30 ms
	s := settlement(r, runs, store.Outcome{Kind: store.Success})
	for i := range s.Runs {
		if rand.IntN(10) == 0 {
			s.Runs[i].Outcome = store.Outcome{Kind: store.Failure, Error: "again"}
		}
	}
	verdicts, err := db.Settle(t.Context(), []store.Settlement{s})
	if err != nil {
		t.Error(err)
		return
	}
	mu.Lock()
	defer mu.Unlock()
	for i, verdict := range verdicts {
		switch {
		case verdict == store.Rejected:
			refused.Add(1)
		case verdict == store.Deferred: // a reclaim held its row for long: the worker would settle it again
		case s.Runs[i].Outcome.Kind == store.Success:
			won[s.Runs[i].ID]++
		}
	}
}

// requireConsistent checks what holds between the tables at rest.
func requireConsistent(t *testing.T, store opened) {
	t.Helper()
	conn := connect(t, store.url)
	for what, query := range map[string]string{
		"pending runs that are not ready as they say": `select count(*) from %[1]s.runs r where state = 0 and not exists
			(select from %[1]s.ready q where q.lane = r.lane and q.due_at = r.due_at and q.run_id = r.id)`,
		"ready rows of runs that are not pending": `select count(*) from %[1]s.ready q where not exists (select from %[1]s.runs r where r.id = q.run_id and r.state = 0)`,
		"ready rows beyond one":                   `select count(*) - count(distinct run_id) from %[1]s.ready`,
		"running runs without a lease": `select count(*) from %[1]s.runs r where state = 1 and not exists
			(select from %[1]s.leases l where l.claim_id = r.claim_id and r.id = any(l.run_ids))`,
	} {
		var n int64
		require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf(query, store.schema)).Scan(&n))
		require.Zero(t, n, what)
	}
}
