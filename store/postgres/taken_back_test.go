package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
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

// failing is a server that fails over: it loses what was committed since an instant.
type failing struct {
	opened

	server *pgtest.Cluster
}

func newFailing(t *testing.T) failing {
	t.Helper()
	server := pgtest.StartPrivate(t, pgtest.Options{})
	return failing{openURL(t, server.URL(), "durable"), server}
}

func (f failing) over(t *testing.T, to *pgtest.Instant) {
	t.Helper()
	to.SetBack(t)
	f.server.Stop(t, pgtest.Immediate)
	f.server.Start(t)
}

// ask counts, once the server answers.
func (f failing) ask(t *testing.T, what string) string {
	t.Helper()
	return pgtest.Ask(t, f.url, "select count(*)::text from durable."+what)
}

func (f failing) wait(t *testing.T, want, what string) {
	t.Helper()
	require.Eventually(t, func() bool { return f.ask(t, what) == want }, time.Minute, 20*time.Millisecond, "%s: want %s, is %s", what, want, f.ask(t, what))
}

// start runs a worker with short leases, and a store of its own, until the test ends.
func (f failing) start(t *testing.T, configure func(*durable.Worker)) {
	t.Helper()
	w := durable.NewWorker(openMigrated(t, f.url, f.schema), durable.WorkerConfig{
		Terms: lease.Terms{Duration: 3 * time.Second}, PollInterval: 100 * time.Millisecond, MaxConcurrentRuns: 10, Process: new(durable.Process)})
	configure(w)
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { require.NoError(t, w.Run(ctx)) })
	t.Cleanup(func() { cancel(); working.Wait() })
}

// A failover loses the outcomes of three of ten runs of one claim. The worker that has settled
// them does so again before another one may take them for those of a crashed worker: half of
// them may not begin twice, and would be dead.
func TestWorker_SettlesAgainWhatTheDatabaseHasLost(t *testing.T) {
	t.Parallel()
	db := newFailing(t)
	early, late := make(chan struct{}), make(chan struct{})
	var begun atomic.Int64
	once := durable.NewJob[int]("once", durable.OnCrash(store.CrashDead))
	often := durable.NewJob[int]("often")
	for i := range 5 {
		_, err := durable.NewClient(db).Enqueue(t.Context(), once.New(i), often.New(i))
		require.NoError(t, err)
	}
	handle := func(_ context.Context, run *durable.Run[int]) error {
		if begun.Add(1); run.Args < 2 {
			<-early
		} else {
			<-late
		}
		if run.Job == "often" && run.Args == 1 && run.Attempt == 1 {
			return errors.New("the first attempt fails")
		}
		return nil
	}
	db.start(t, func(w *durable.Worker) {
		durable.Register(w, once, handle)
		durable.Register(w, durable.NewJob[int]("often", durable.Retry(durable.Fixed(time.Hour))), handle)
	})
	db.start(t, func(w *durable.Worker) {
		durable.Register(w, durable.NewJob[int]("other"), func(context.Context, *durable.Run[int]) error { return nil })
	})
	db.wait(t, "10", "runs where state = 1")
	before := pgtest.Keep(t, db.url, db.schema)
	close(early)
	db.wait(t, "6", "runs where state = 1")
	db.over(t, before)
	require.Equal(t, "10", db.ask(t, "runs where state <> 0 or crash_count > 0 or attempt = 1"))
	db.wait(t, "6", "runs where state = 1")
	require.Equal(t, "3", db.ask(t, "runs where state = 2"))
	require.Equal(t, "1", db.ask(t, "runs where state = 0 and attempt = 1 and due_at > now() + interval '50 minutes'"))
	require.Equal(t, "0", withoutLease(t, db.opened))
	close(late)
	db.wait(t, "9", "runs where state = 2")
	require.Equal(t, "0", db.ask(t, "runs where crash_count > 0"))
	require.EqualValues(t, 10, begun.Load(), "nothing was executed twice")
	db.wait(t, "0", "leases")
}

// A failover loses what a worker has declared. It declares it again, and not an hour later.
func TestWorker_DeclaresAgainWhatTheDatabaseHasLost(t *testing.T) {
	t.Parallel()
	db := newFailing(t)
	before := pgtest.Keep(t, db.url, db.schema)
	job := durable.NewJob[int]("mail", durable.Limited(durable.NewLimit("one", durable.Mutex())))
	db.start(t, func(w *durable.Worker) {
		durable.Register(w, job, func(context.Context, *durable.Run[int]) error { return nil })
		durable.AddSchedule(w, "hourly", job, 1, durable.Every(time.Hour))
	})
	declared := []string{"workers", "jobs", "limits", "schedules"}
	for _, table := range declared {
		db.wait(t, "1", table)
	}
	db.over(t, before)
	for _, table := range declared {
		db.wait(t, "1", table)
	}
	_, err := durable.NewClient(db).Enqueue(t.Context(), job.New(1))
	require.NoError(t, err)
	db.wait(t, "1", "runs where state = 2")
}

// After a failover that lost a schedule, its number is given to another one. The handler of a
// run learns the name of its own.
func TestClaim_NamesTheScheduleThatHasTheNumberNow(t *testing.T) {
	t.Parallel()
	db := openURL(t, pgtest.Database(t), "durable")
	w := worker("w")
	claimedOf := func(name string) string {
		t.Helper()
		due := store.Schedule{Name: name, Hash: name, Rule: store.Every(time.Hour), Job: "mail", Queue: store.DefaultQueue, Args: []byte(`{}`), MaxAttempts: 1}
		require.NoError(t, db.Declare(t.Context(), store.Declaration{Worker: w, Schedules: []store.Schedule{due}}))
		require.NoError(t, db.RunSchedule(t.Context(), name, store.NewRunID(), store.OverlapAllow, "ann"))
		_, runs := claim(t, db, w, 1, time.Minute)
		require.Len(t, runs, 1)
		return runs[0].Schedule
	}
	before := pgtest.Keep(t, db.url, db.schema)
	require.Equal(t, "lost", claimedOf("lost"))
	number := pgtest.Ask(t, db.url, "select max(id)::text from durable.schedules")
	before.SetBack(t)
	require.Eventually(t, func() bool {
		_, err := db.Reclaim(t.Context(), store.ReclaimRequest{MaxCrashes: 4, Server: 1})
		return err == nil
	}, time.Minute, time.Millisecond)
	require.Equal(t, "new", claimedOf("new"))
	require.Equal(t, number, pgtest.Ask(t, db.url, "select max(id)::text from durable.schedules"))
}
