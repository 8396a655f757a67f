package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// members are runs of a batch.
func members(n int, b *store.NewBatch) []store.NewRun {
	runs := newRuns(n)
	for i := range runs {
		runs[i].Batch = b
	}
	return runs
}

// end ends runs by hand, in a state.
func (o opened) end(t *testing.T, conn *pgx.Conn, state store.State, runs ...store.NewRun) {
	t.Helper()
	for i := range runs {
		o.exec(t, conn, "delete from ready where run_id = $1", runs[i].ID)
		o.exec(t, conn, "update runs set state = $1, finished_at = now() where id = $2", int(state), runs[i].ID)
	}
}

// Fail fast cancels a batch also when its member has failed while a transaction was adding runs to
// it, and that transaction then changes nothing.
func TestFailFastIsNotForgottenBesideATransactionThatIsRolledBack(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	b := &store.NewBatch{ID: store.NewRunID(), Name: "pages", OpenFor: time.Hour, FailFast: true}
	runs := members(2, b)
	_, err := db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	adding, err := connect(t, db.url).Begin(t.Context())
	require.NoError(t, err)
	_, err = db.WithTx(adding).Enqueue(t.Context(), members(1, b)...)
	require.NoError(t, err)
	conn := connect(t, db.url)
	db.exec(t, conn, "set search_path = "+db.schema)
	db.end(t, conn, store.Dead, runs[0])
	failed := func() bool {
		_, err := db.Release(t.Context(), store.ReleaseRequest{Limit: 10})
		require.NoError(t, err)
		got, err := db.Batch(t.Context(), b.ID)
		require.NoError(t, err)
		require.False(t, got.Cancelled)
		return got.FailedAt != nil
	}
	require.Eventually(t, failed, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, adding.Rollback(t.Context()))
	require.Eventually(t, func() bool {
		_, err := db.Release(t.Context(), store.ReleaseRequest{Limit: 10})
		require.NoError(t, err)
		got, err := db.Batch(t.Context(), b.ID)
		require.NoError(t, err)
		return got.State == store.BatchCancelled && got.Counts == store.BatchCounts{Members: 2, Dead: 1, Cancelled: 1}
	}, 20*time.Second, 10*time.Millisecond)
}

// One sweep deletes all batches that are over, however many there are: they may end faster than
// sweeps come.
func TestASweepDeletesAllBatchesThatAreOver(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	db.exec(t, conn, "set search_path = "+db.schema)
	var runs []store.NewRun
	for range 250 {
		runs = append(runs, members(2, &store.NewBatch{ID: store.NewRunID(), Name: "pages"})...)
	}
	_, err := db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	db.exec(t, conn, "delete from ready")
	db.exec(t, conn, "update runs set state = 2, finished_at = now()")
	require.Eventually(t, func() bool {
		_, err := db.Release(t.Context(), store.ReleaseRequest{Limit: 10})
		require.NoError(t, err)
		return db.count(t, conn, "select count(*) from batches where state = 0") == 0
	}, 20*time.Second, time.Millisecond)
	db.exec(t, conn, "update batches set ended_at = ended_at - interval '30 hours'")
	sweep(t, db, sweeper())
	require.Zero(t, db.count(t, conn, "select count(*) from batches"))
	require.Zero(t, db.count(t, conn, "select count(*) from members"))
}

// batchRows lays down open batches from one number to another, at which it is time to look tomorrow.
func batchRows(t *testing.T, db opened, conn *pgx.Conn, from, to int) {
	t.Helper()
	db.exec(t, conn, fmt.Sprintf("insert into batches (id, name, closed, fail_fast, members, look_at, ends_by) select gen_random_uuid(), 'b', true, false, 2, t, t from generate_series(%d, %d) i, "+
		"lateral (select now() + interval '1 day' + i * interval '1 second' as t) at", from, to-1))
}

// Workers ask many times a second which batches they have to look at. That does not cost more the
// more batches have an instant by which they must have ended.
func TestBatchesWithTimersAreFoundByTheirIndex(t *testing.T) {
	t.Parallel()
	db := openFresh(t, pgtest.Server(t))
	conn := connect(t, db.url)
	db.exec(t, conn, "set search_path = "+db.schema+"; set enable_seqscan = off; set enable_bitmapscan = off; set jit = off; set plan_cache_mode = force_generic_plan")
	db.exec(t, conn, "prepare one as "+asSent(t, queries.ChangedBatches, db.schema+"."))
	cost := func() int {
		return explained(t, conn, "execute one ('00000000-0000-0000-0000-000000000000', 64)")
	}
	batchRows(t, db, conn, 0, 100)
	few := cost()
	batchRows(t, db, conn, 100, manyWaiting(t))
	require.LessOrEqual(t, cost(), 3*few+20)
}

// A fold takes a part of the changes of a batch, and runs that were added from outside may be in the
// rest: counts that agree are no end before nothing is left.
func TestABatchHasNotEndedWhileChangesOfItAreLeft(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	db.exec(t, conn, "set search_path = "+db.schema)
	b := &store.NewBatch{ID: store.NewRunID(), Name: "pages", OpenFor: time.Hour}
	after := newRuns(1)
	after[0].DependsOn = []store.Condition{{Want: store.WantEnded, Batches: []store.NewBatch{*b}}}
	_, err := db.Enqueue(t.Context(), after...)
	require.NoError(t, err)
	db.exec(t, conn, "insert into batch_changes (batch, members, succeeded) select $1, 1, 1 from generate_series(1, 5000)", b.ID)
	runs := members(1, b)
	_, err = db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	require.NoError(t, db.CloseBatch(t.Context(), store.BatchClose{ID: b.ID}))
	release := func() store.Batch {
		_, err := db.Release(t.Context(), store.ReleaseRequest{Limit: 10})
		require.NoError(t, err)
		got, err := db.Batch(t.Context(), b.ID)
		require.NoError(t, err)
		return got
	}
	for range 3 {
		got := release()
		require.Equal(t, store.BatchRunning, got.State)
		require.Nil(t, got.EndedAt)
		require.Equal(t, store.BatchCounts{Members: 5001, Succeeded: 5000}, got.Counts)
	}
	db.end(t, conn, store.Succeeded, runs...)
	require.Eventually(t, func() bool { return release().State == store.BatchSucceeded }, 20*time.Second, time.Millisecond)
}

// ofBatches are the statements that walk through members, for a batch of two.
func ofBatches() []planned {
	const batch, first = "'00000000-0000-7000-8003-000000000000'", "'00000000-0000-0000-0000-000000000000'"
	return []planned{
		{"MembersOf", queries.MembersOf, batch + ", " + first + ", 1001"},
		{"CancelMembers", queries.CancelMembers, batch + ", " + first + ", 1000"},
		{"FoldChanges", queries.FoldChanges, "array[" + batch + "]::uuid[], 5000"},
		{"FoldedBatches", queries.FoldedBatches, "array[" + batch + "]::uuid[]"},
		{"BatchesByID", queries.BatchesByID, "array[" + batch + "]::uuid[]"},
		{"SweepBatches", queries.SweepBatches, "0, 0, 0, 1000, 5000"},
	}
}

// memberRows lays down members of one batch from one number to another, with a change for each. The
// batch is not over.
func memberRows(t *testing.T, db opened, conn *pgx.Conn, from, to int) {
	t.Helper()
	ids := strings.NewReplacer("RUN", fmt.Sprintf(waiterID, "i"), "BATCH", "'00000000-0000-7000-8004-000000000000'::uuid", "NUMBERS", fmt.Sprintf("generate_series(%d, %d) i", from, to-1))
	for _, sql := range []string{
		"insert into runs (id, due_at, lane, max_attempts, args, links) select RUN, 'tomorrow', 1, 3, '{}', 4 from NUMBERS",
		"insert into members (run_id, batch) select RUN, BATCH from NUMBERS",
		"insert into batch_changes (batch, members) select BATCH, 1 from NUMBERS",
	} {
		db.exec(t, conn, ids.Replace(sql))
	}
}

// What is done with a small batch that is over does not cost more the more members others have: where
// nothing was ever analyzed, where all was, and where all was read into indexes.
func TestMembersOfABatchAreFoundByTheirIndex(t *testing.T) {
	t.Parallel()
	for _, analyzed := range []string{"", "analyze", "vacuum analyze"} {
		t.Run("after "+analyzed, func(t *testing.T) {
			t.Parallel()
			db := openFresh(t, pgtest.Server(t))
			_, err := db.Enqueue(t.Context(), newRuns(1)...)
			require.NoError(t, err)
			conn := connect(t, db.url)
			db.exec(t, conn, "set search_path = "+db.schema+"; set enable_seqscan = off; set enable_bitmapscan = off; set jit = off; set plan_cache_mode = force_generic_plan")
			db.exec(t, conn, "insert into batches (id, name, closed, fail_fast, members, succeeded, state, ended_at, cursor) "+
				"values ('00000000-0000-7000-8003-000000000000', 'small', true, false, 2, 2, 1, now() - interval '1 day', '00000000-0000-0000-0000-000000000000'), "+
				"('00000000-0000-7000-8004-000000000000', 'large', true, false, 2, 0, 0, null, null)")
			db.exec(t, conn, "insert into members (run_id, batch) select gen_random_uuid(), '00000000-0000-7000-8003-000000000000' from generate_series(1, 2)")
			memberRows(t, db, conn, 0, manyWaiting(t))
			if analyzed != "" {
				for _, table := range []string{"runs", "members", "batches", "batch_changes"} {
					db.exec(t, conn, analyzed+" "+table)
				}
			}
			for _, one := range ofBatches() {
				tx, err := conn.Begin(t.Context())
				require.NoError(t, err)
				db.exec(t, conn, "prepare one as "+asSent(t, one.statement, db.schema+"."))
				blocks := explained(t, conn, "execute one ("+one.arguments+")")
				t.Logf("%s: %d blocks", one.name, blocks)
				require.LessOrEqual(t, blocks, 60, one.name)
				require.NoError(t, tx.Rollback(t.Context()))
				db.exec(t, conn, "deallocate one")
			}
		})
	}
}

// Batches that stay due, as other transactions keep them locked, are in no other's way.
func TestBatchesThatStayDueAreInNoOthersWay(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn, locking := connect(t, db.url), connect(t, db.url)
	db.exec(t, conn, "set search_path = "+db.schema)
	b := &store.NewBatch{ID: store.NewRunID(), Name: "pages"}
	runs := members(2, b)
	_, err := db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	db.exec(t, conn, "insert into batches (id, name, closed, fail_fast, look_at) select ('ffffffff-ffff-7000-8000-' || lpad(i::text, 12, '0'))::uuid, 'locked', true, false, now() "+
		"from generate_series(1, 100) i")
	db.exec(t, locking, "begin; select from %s.batches where name = 'locked' for update")
	for i := range runs {
		db.end(t, conn, store.Succeeded, runs[i])
		require.Eventually(t, func() bool {
			_, err := db.Release(t.Context(), store.ReleaseRequest{Limit: 10})
			require.NoError(t, err)
			return db.count(t, conn, "select succeeded::int from batches where name = 'pages'") == i+1
		}, 5*time.Second, 10*time.Millisecond)
	}
	db.exec(t, locking, "rollback")
}
