package postgres_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// looks calls everything that an operator reads.
func looks(ctx context.Context, db *postgres.Store, id store.RunID) error {
	calls := []func() error{
		func() error { _, err := db.Runs(ctx, store.Filter{}); return err },
		func() error { _, err := db.Counts(ctx); return err },
		func() error { _, err := db.CountMatching(ctx, store.Filter{Jobs: []string{"mail"}}); return err },
		func() error { _, err := db.Queues(ctx); return err },
		func() error { _, err := db.Survey(ctx); return err },
		func() error { _, err := db.Workers(ctx); return err },
		func() error { _, err := db.Facts(ctx, id); return err },
		func() error { _, err := db.Problems(ctx, store.ProblemFilter{}); return err },
		func() error { _, err := db.Changes(ctx, store.ChangeFilter{}); return err },
		func() error { _, err := db.Jobs(ctx); return err },
		func() error { _, err := db.ListLimits(ctx, store.LimitFilter{}); return err },
		func() error { _, err := db.ListSchedules(ctx); return err },
		func() error {
			_, err := db.Series(ctx, store.SeriesQuery{Span: store.Minute, Within: time.Hour})
			return err
		},
	}
	for _, call := range calls {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

func usedOf(db *postgres.Store, name string) store.Pool {
	pools := db.Pools()
	return pools[slices.IndexFunc(pools, func(p store.Pool) bool { return p.Name == name })]
}

func TestOperators_AStormTakesNoConnectionFromTheEngine(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, err := db.Enqueue(t.Context(), newRuns(20)...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var storm sync.WaitGroup
	for range 40 {
		storm.Go(func() {
			for ctx.Err() == nil {
				_ = looks(ctx, db.Store, store.NewRunID()) // some give up: they wait for one of three connections
			}
		})
	}
	conn := connect(t, db.url)
	most, worst := 0, time.Duration(0)
	for range 20 {
		began := time.Now()
		r, runs := claim(t, db, worker("a"), 1, time.Minute)
		require.Len(t, runs, 1)
		_, err := db.Settle(t.Context(), []store.Settlement{{Claim: r.Claim, Worker: r.Worker, Last: true, Runs: []store.Settled{{ID: runs[0].ID, Outcome: store.Outcome{Kind: store.Success}}}}})
		require.NoError(t, err)
		_, err = db.Enqueue(t.Context(), newRun())
		require.NoError(t, err)
		worst = max(worst, time.Since(began))
		require.LessOrEqual(t, usedOf(db.Store, "engine").Used, 1)
		require.Zero(t, usedOf(db.Store, "general").Used)
		most = max(most, usedOf(db.Store, "operate").Used)
		var open int
		require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from pg_stat_activity where application_name = 'durable operate' and query like '%'||$1||'%'", db.schema).Scan(&open))
		require.LessOrEqual(t, open, 3)
	}
	cancel()
	storm.Wait()
	require.Positive(t, most, "the storm goes over the pool")
	require.Equal(t, 3, usedOf(db.Store, "operate").Max)
	t.Logf("a claim, a settle and an enqueue took at most %v", worst)
	require.NoError(t, looks(t.Context(), db.Store, store.NewRunID()))
	require.Positive(t, usedOf(db.Store, "operate").Idle)
	require.Eventually(t, func() bool { p := usedOf(db.Store, "operate"); return p.Used+p.Idle == 0 }, 30*time.Second, 100*time.Millisecond,
		"a connection is kept although no one asks")
}

func TestOperators_WorksWhileApplicationsUseAllConnections(t *testing.T) {
	t.Parallel()
	first := openStore(t, "")
	config, err := pgxpool.ParseConfig(first.url)
	require.NoError(t, err)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db, err := postgres.New(t.Context(), pool, postgres.Config{Schema: first.schema})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	require.NoError(t, looks(t.Context(), db, store.NewRunID()))
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	require.NoError(t, looks(t.Context(), db, store.NewRunID()))
}

func TestOperators_NamesTheTransactionThatHasARun(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	run := newRun()
	_, err := db.Enqueue(t.Context(), run)
	require.NoError(t, err)
	explain := func() operate.Explanation {
		facts, err := db.Facts(t.Context(), run.ID)
		require.NoError(t, err)
		return operate.Explain(facts)
	}
	held := func(e operate.Explanation) bool {
		return slices.ContainsFunc(e.Blockers, func(b operate.Blocker) bool { return b.Kind == operate.BlockerRowHeld })
	}
	require.False(t, held(explain()))
	tx := hold(t, db, "runs", "true")
	e := explain()
	require.True(t, held(e), e.Summary)
	require.Regexp(t, `another transaction holds the run's row \(pid \d+.* for \d+`, e.Summary)
	require.NoError(t, tx.Rollback(t.Context()))
	require.False(t, held(explain()))
}

// A series of the last minutes does not read the steps before them, of whatever jobs.
func TestSeriesReadsTheStepsItReturns(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	_, err := conn.Exec(t.Context(), `insert into `+db.schema+`.stats
		select 1, 'queue-' || job % 4, 'job-' || job, date_bin('1 minute', now(), 'epoch') - step * interval '1 minute', 1, 1, 0, 0, 0, 0, 0, '{}', '{}'
		from generate_series(1, 20) job, generate_series(0, 2999) step; analyze `+db.schema+`.stats`)
	require.NoError(t, err)
	within := func(d time.Duration) int {
		return blocksOf(t, db, queries.Series, time.Minute.Microseconds(), true, int16(store.Minute), d.Microseconds(), store.MaxSeriesPoints, false, "", "", "\U0010ffff")
	}
	points, err := db.Series(t.Context(), store.SeriesQuery{Span: store.Minute, Scope: store.EachLane, Within: 3 * time.Minute})
	require.NoError(t, err)
	require.Contains(t, []int{20 * 3, 20 * 2}, len(points), "of all jobs; two steps if a minute has begun since")
	require.Less(t, within(3*time.Minute), 20*15)
	require.Greater(t, within(3000*time.Minute), 20*20)
}
