package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// exec runs statements of an operator, in which %s is the schema.
func (o opened) exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), strings.ReplaceAll(sql, "%s", o.schema), args...)
	require.NoError(t, err, sql)
}

func (o opened) count(t *testing.T, conn *pgx.Conn, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), strings.ReplaceAll(sql, "%s", o.schema), args...).Scan(&n), sql)
	return n
}

// finished enqueues runs and ends them all alike.
func finished(t *testing.T, db opened, outcome store.OutcomeKind, runs ...store.NewRun) []store.RunID {
	t.Helper()
	_, err := db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	r, claimed := claim(t, db, worker("w"), len(runs), time.Minute)
	require.Len(t, claimed, len(runs))
	_, err = db.Settle(t.Context(), []store.Settlement{settlement(r, claimed, store.Outcome{Kind: outcome, Error: "x"})})
	require.NoError(t, err)
	ids := make([]store.RunID, len(runs))
	for i := range runs {
		ids[i] = runs[i].ID
	}
	return ids
}

// sweep makes steps until nothing more is to be looked at.
func sweep(t *testing.T, db store.Store, request store.SweepRequest) store.SweepResult {
	t.Helper()
	var all store.SweepResult
	for range 1000 {
		swept, err := db.Sweep(t.Context(), request)
		require.NoError(t, err)
		require.False(t, swept.Busy)
		all.Deleted += swept.Deleted
		all.Mended += swept.Mended
		all.Returned = append(all.Returned, swept.Returned...)
		if swept.Done {
			return all
		}
	}
	require.Fail(t, "the sweep does not end")
	return all
}

func sweeper() store.SweepRequest {
	return store.SweepRequest{By: uuid.New(), Retention: 24 * time.Hour, RetentionDead: 24 * time.Hour, Limit: 100}
}

// requireNoOrphans looks for rows of runs that are gone.
func requireNoOrphans(t *testing.T, store opened) {
	t.Helper()
	conn := connect(t, store.url)
	for _, table := range []string{"attempts", "problems", "progress", "steps", "inputs", "unique_keys", "ready"} {
		require.Zero(t, store.count(t, conn, "select count(*) from %s."+table+" x where not exists (select from %s.runs r where r.id = x.run_id)"), table)
	}
	require.Zero(t, store.count(t, conn, "select count(*) from %s.problems p join %s.runs r on r.id = p.run_id where r.state not in (4, 5)"))
	requireConsistent(t, store)
}

// made returns runs whose ids tell that they were made some time ago.
func made(n int, ago time.Duration) []store.NewRun {
	runs := newRuns(n)
	for i := range runs {
		at := time.Now().Add(-ago).Add(time.Duration(i) * time.Millisecond).UnixMilli()
		for k := 5; k >= 0; k-- {
			runs[i].ID[k] = byte(at)
			at >>= 8
		}
	}
	return runs
}

func TestSweepWalksAlongTheIDs(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	require.Zero(t, sweep(t, db, sweeper()).Deleted) // the full pass has been, and will not be for an hour
	finished(t, db, store.Success, made(250, 30*time.Hour)...)
	finished(t, db, store.Death, made(10, 29*time.Hour)...)
	finished(t, db, store.Success, made(20, 24*time.Hour+30*time.Minute)...) // not as old as the walk looks
	db.exec(t, conn, "update %s.runs set finished_at = finished_at - interval '30 hours', started_at = started_at - interval '30 hours'")
	late := finished(t, db, store.Success, made(1, 28*time.Hour)...) // has ended only now
	swept := sweep(t, db, sweeper())
	require.Equal(t, 260, swept.Deleted)
	require.Equal(t, 1, db.count(t, conn, "select count(*) from %s.runs where id = $1", late[0]))
	require.Zero(t, sweep(t, db, sweeper()).Deleted, "the walk does not come back")
	db.exec(t, conn, "update %s.sweep set began_at = now() - interval '1 hour'")
	require.Equal(t, 20, sweep(t, db, sweeper()).Deleted, "the pass finds the rest")
	db.shift(t, 25*time.Hour)
	require.Equal(t, 1, sweep(t, db, sweeper()).Deleted)
	requireNoOrphans(t, db)
}

func TestSweepSkipsLockedRuns(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	ids := finished(t, db, store.Death, newRuns(30)...)
	db.shift(t, 25*time.Hour)
	tx := hold(t, db, "runs", "id = any ($1)", ids[:3])
	request := sweeper()
	request.Limit = 10
	require.Equal(t, 27, sweep(t, db, request).Deleted) // one that waited for the holder would fail
	require.NoError(t, tx.Rollback(t.Context()))
	db.shift(t, 2*time.Hour)
	require.Equal(t, 3, sweep(t, db, sweeper()).Deleted)
	requireNoOrphans(t, db)
}

// between runs an operator's statements after a sweep has looked and before it
// locks what it has found: the table's lock lets others read and nothing else.
func between(t *testing.T, db opened, request store.SweepRequest, operate func(*pgx.Conn)) store.SweepResult {
	t.Helper()
	conn := connect(t, db.url)
	db.exec(t, conn, "begin")
	db.exec(t, conn, "lock table %s.runs in exclusive mode")
	type answer struct {
		swept store.SweepResult
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		swept, err := db.Sweep(t.Context(), request)
		answers <- answer{swept, err}
	}()
	watch := connect(t, db.url)
	require.Eventually(t, func() bool {
		return db.count(t, watch, "select count(*) from pg_locks where relation = '%s.runs'::regclass and not granted") > 0
	}, time.Minute, 5*time.Millisecond)
	operate(conn)
	db.exec(t, conn, "commit")
	got := <-answers
	require.NoError(t, got.err)
	return got.swept
}

func TestSweepLeavesARetriedRunAlone(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	ids := finished(t, db, store.Death, newRuns(2)...)
	db.shift(t, 25*time.Hour)
	swept := between(t, db, sweeper(), func(conn *pgx.Conn) {
		// The state alone must be enough.
		db.exec(t, conn, "update %s.runs set state = 0, due_at = now() where id = $1", ids[0])
		db.exec(t, conn, "insert into %s.ready (lane, due_at, run_id) select lane, due_at, id from %s.runs where id = $1", ids[0])
		db.exec(t, conn, "delete from %s.problems where run_id = $1", ids[0])
	})
	require.Equal(t, 1, swept.Deleted)
	record, err := db.Run(t.Context(), ids[0])
	require.NoError(t, err)
	require.Equal(t, store.Pending, record.State)
	require.Len(t, record.Attempts, 1)
	requireNoOrphans(t, db)
}

func TestSweepIsBusyWhileAStepIsUnderWay(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	finished(t, db, store.Success, newRun())
	db.shift(t, 25*time.Hour)
	swept := between(t, db, sweeper(), func(*pgx.Conn) {
		other, err := db.Sweep(t.Context(), sweeper()) // if it waited, it would wait for us
		require.NoError(t, err)
		require.Equal(t, store.SweepResult{Busy: true}, other)
	})
	require.Equal(t, 1, swept.Deleted)
}

func TestSweepLeavesARunAloneThatEndedAgain(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	ids := finished(t, db, store.Death, newRuns(2)...)
	db.shift(t, 25*time.Hour)
	swept := between(t, db, sweeper(), func(conn *pgx.Conn) {
		db.exec(t, conn, "update %s.runs set finished_at = now() where id = $1", ids[0])
	})
	require.Equal(t, 1, swept.Deleted)
	requireNoOrphans(t, db)
}

func TestSweepLeavesARunAloneThatWasClaimedAgain(t *testing.T) {
	t.Parallel()
	store := openStore(t, "")
	_, err := store.Enqueue(t.Context(), newRuns(2)...)
	require.NoError(t, err)
	r, runs := claim(t, store, worker("gone"), 2, time.Minute)
	conn := connect(t, store.url)
	store.exec(t, conn, "delete from %s.leases where claim_id = $1", uuid.UUID(r.Claim))
	again := uuid.New()
	swept := between(t, store, sweeper(), func(conn *pgx.Conn) { // a late hand-back, and a claim after it
		store.exec(t, conn, "update %s.runs set claim_id = $1, fence = fence + 1 where id = $2", again, runs[0].ID)
		store.exec(t, conn, `insert into %s.leases (claim_id, worker, acquired_at, expires_at, duration, alone, run_ids)
			values ($1, 1, now(), now() + interval '1 minute', 60000000, false, array[$2::uuid])`, again, runs[0].ID)
	})
	require.Len(t, swept.Returned, 1)
	require.Equal(t, runs[1].ID, swept.Returned[0].ID)
	requireNoOrphans(t, store)
}

func TestSweepAndUniqueKeys(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	ids := finished(t, db, store.Success, newRuns(5)...)
	conn := connect(t, db.url)
	name := func(i int, key, held string) {
		db.exec(t, conn, "update %s.runs set key = $2 where id = $1", ids[i], key)
		db.exec(t, conn, "insert into %s.unique_keys (job, key, run_id, latest, held_to) values ('mail', $2, $1, $1, "+held+")", ids[i], key)
	}
	name(0, "free", "null")
	name(1, "over", "now() + interval '1 hour'")
	name(2, "held", "now() + interval '30 hours'")
	name(3, "locked", "null")
	db.exec(t, conn, "update %s.runs set key = 'held' where id = $1", ids[4]) // another run has the key by now
	db.shift(t, 25*time.Hour)
	tx := hold(t, db, "unique_keys", "key = 'locked'")
	require.Equal(t, 3, sweep(t, db, sweeper()).Deleted)
	var left []string
	rows, err := conn.Query(t.Context(), fmt.Sprintf("select key from %s.unique_keys order by key", db.schema))
	require.NoError(t, err)
	left, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"held", "locked"}, left)
	require.NoError(t, tx.Rollback(t.Context()))
	db.shift(t, 2*time.Hour)
	require.Equal(t, 1, sweep(t, db, sweeper()).Deleted)
	db.shift(t, 4*time.Hour)
	require.Equal(t, 1, sweep(t, db, sweeper()).Deleted)
	require.Zero(t, db.count(t, conn, "select count(*) from %s.unique_keys"))
	requireNoOrphans(t, db)
}

func TestSweepOfARunThatIsToBeCancelled(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	_, err := db.Enqueue(t.Context(), newRuns(3)...)
	require.NoError(t, err)
	r, runs := claim(t, db, worker("gone"), 2, time.Minute)
	_, alive := claim(t, db, worker("alive"), 1, time.Minute)
	conn := connect(t, db.url)
	db.exec(t, conn, "insert into %s.cancels (claim_id, run_id) select claim_id, id from %s.runs where state = 1")
	db.exec(t, conn, "update %s.runs set cancel = 'no longer wanted' where id = any ($1)", []store.RunID{runs[0].ID, alive[0].ID})
	db.exec(t, conn, "delete from %s.leases where claim_id = $1", uuid.UUID(r.Claim))
	swept := sweep(t, db, sweeper())
	require.Len(t, swept.Returned, 2)
	for _, run := range swept.Returned {
		want := store.Pending
		if run.ID == runs[0].ID {
			want = store.Cancelled
		}
		require.Equal(t, want, run.State)
		require.Equal(t, "gone", run.Worker)
	}
	record, err := db.Run(t.Context(), runs[0].ID)
	require.NoError(t, err)
	require.Equal(t, "no longer wanted", *record.Error)
	require.NotNil(t, record.FinishedAt)
	require.Equal(t, 1, db.count(t, conn, "select count(*) from %s.cancels"), "the requests of a claim that is over go")
	require.Equal(t, 1, db.count(t, conn, "select count(*) from %s.cancels where run_id = $1", alive[0].ID))
	requireNoOrphans(t, db)
}

func TestSweepForgetsWorkers(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	old, holding, fresh := worker("old"), worker("holding"), worker("fresh")
	for _, w := range []store.WorkerID{old, holding} {
		require.NoError(t, db.Declare(t.Context(), store.Declaration{Worker: w}))
	}
	_, err := db.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	claim(t, db, holding, 1, time.Minute)
	conn := connect(t, db.url)
	names := func() int { return db.count(t, conn, "select count(*) from %s.workers") }
	db.shift(t, 6*24*time.Hour)
	require.NoError(t, db.Declare(t.Context(), store.Declaration{Worker: fresh}))
	sweep(t, db, sweeper())
	require.Equal(t, 3, names())
	db.shift(t, 2*24*time.Hour)
	forever := sweeper()
	forever.RetentionDead = store.KeepForever
	sweep(t, db, forever)
	require.Equal(t, 3, names(), "runs are kept that name them")
	db.shift(t, 2*time.Hour)
	sweep(t, db, sweeper())
	require.Equal(t, 2, names())
}

func TestPlansOfSweep(t *testing.T) {
	t.Parallel()
	db := openURL(t, pgtest.Database(t)+"&plan_cache_mode=force_generic_plan", "durable")
	conn := connect(t, db.url)
	withoutAutovacuum(t, db)
	sweep(t, db, sweeper()) // plans are made on empty tables, and kept
	for i := range 10 {
		_, err := db.Enqueue(t.Context(), made(5000, time.Duration(30+i)*time.Hour)...)
		require.NoError(t, err)
	}
	db.exec(t, conn, "update %s.runs set state = 4, finished_at = now() - interval '30 hours', key = id::text")
	db.exec(t, conn, "insert into %s.attempts (run_id, fence, number, outcome, worker, started_at, ended_at) select id, 1, 1, 3, 'w', now(), now() from %s.runs")
	db.exec(t, conn, "insert into %s.problems (run_id, ended_at, state, lane) select id, now(), 4, lane from %s.runs")
	db.exec(t, conn, "insert into %s.unique_keys (job, key, run_id, latest) select 'mail', key, id, id from %s.runs")
	db.exec(t, conn, "delete from %s.ready")
	db.exec(t, conn, "update %s.sweep set began_at = '-infinity'")
	require.NoError(t, conn.Close(t.Context())) // it reports what it has counted when it ends
	conn = connect(t, db.url)
	<-time.After(11 * time.Second) // an idle session reports within ten seconds
	require.Eventually(t, func() bool {
		reported := db.count(t, conn, `select count(*) from pg_stat_user_tables where schemaname = 'durable' and
			(relname = 'runs' and n_tup_ins >= 50000 and n_tup_upd >= 50000 or relname = 'ready' and n_tup_ins >= 50000 and n_tup_del >= 50000
			or relname in ('attempts', 'problems', 'unique_keys') and n_tup_ins >= 50000)`)
		return reported == 5
	}, time.Minute, 100*time.Millisecond, "all that was done so far is counted")
	db.exec(t, conn, "select pg_stat_reset()")
	request := sweeper()
	request.Limit = 1000
	for range 20 {
		swept, err := db.Sweep(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, 1000, swept.Deleted)
	}
	request.Retention, request.RetentionDead = store.KeepForever, store.KeepForever // only the pass
	require.Zero(t, sweep(t, db, request).Deleted)
	db.Close()
	var looked, scans int
	require.Eventually(t, func() bool {
		err := conn.QueryRow(t.Context(), `select sum(idx_tup_fetch) filter (where relname = 'runs'), sum(seq_scan) from pg_stat_user_tables
			where schemaname = 'durable' and relname in ('runs', 'attempts', 'problems', 'progress', 'steps', 'inputs', 'unique_keys')`).Scan(&looked, &scans)
		return err == nil && looked >= 60_000
	}, 20*time.Second, 100*time.Millisecond)
	require.Zero(t, scans, "a table was read whole")
	require.LessOrEqual(t, looked, 100_000)
}
