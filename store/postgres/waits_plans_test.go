package postgres_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/queries"
)

// manyWaiting is how many runs wait at the end of the tests of plans: DURABLE_TEST_RUNS, or what a
// machine has in a second.
func manyWaiting(t *testing.T) int {
	t.Helper()
	text := os.Getenv("DURABLE_TEST_RUNS")
	if text == "" {
		return 20_000
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

const (
	waiterID = "('00000000-0000-7000-8001-' || lpad(to_hex(%[1]s), 12, '0'))::uuid"
	sourceID = "('00000000-0000-7000-8002-' || lpad(to_hex(%[1]s), 12, '0'))::uuid"
)

// waitingRows lays down runs from one number to another. Each waits for a source that executes, and
// all for the first source. One of two has begun and waits for an input, one of four for a child; one
// in ten has a notice that is due.
func waitingRows(t *testing.T, db opened, conn *pgx.Conn, from, to int) {
	t.Helper()
	ids := strings.NewReplacer("WAITER", fmt.Sprintf(waiterID, "i"), "SOURCE", fmt.Sprintf(sourceID, "i"), "HUB", fmt.Sprintf(sourceID, "0"),
		"NUMBERS", fmt.Sprintf("generate_series(%d, %d) i", from, to-1))
	for _, sql := range []string{
		"insert into runs (id, due_at, lane, max_attempts, args, started_at) select WAITER, 'tomorrow', 1, 3, '{}', case when i % 2 = 1 then now() end from NUMBERS",
		"insert into runs (id, due_at, lane, max_attempts, args, started_at, state, claim_id, links) select SOURCE, now(), 1, 3, '{}', now(), 1, SOURCE, 1 from NUMBERS",
		"insert into ready (lane, due_at, run_id) select 1, 'tomorrow', WAITER from NUMBERS",
		"insert into edges (waiter, source, wants) select WAITER, SOURCE, 1 from NUMBERS",
		"insert into edges (waiter, source, wants) select WAITER, HUB, 2 from NUMBERS",
		"insert into edges (waiter, source, wants, name) select WAITER, SOURCE, 2, 'child' from NUMBERS where i % 4 = 1",
		"insert into steps (run_id, tries, kind, name) select WAITER, 0, 4, 'go' from NUMBERS where i % 2 = 1",
		"insert into steps (run_id, tries, kind, name) select WAITER, 1, 5, 'child' from NUMBERS where i % 4 = 1",
		"insert into steps (run_id, tries, kind, name) select SOURCE, 0, 1, 'done' from NUMBERS",
		"insert into inputs (run_id, size, name, digest) select WAITER, 2, 'go', 'd' from NUMBERS where i % 4 = 3",
		"insert into notices (due_at, run_id, name) select now() - interval '1 hour' + i * interval '1 microsecond', WAITER, 'go' from NUMBERS where i % 10 = 1",
	} {
		db.exec(t, conn, ids.Replace(sql))
	}
}

// planned is a statement with arguments, in which WAITERS and SOURCES are some of the runs.
type planned struct{ name, statement, arguments string }

// ofWaits are the statements of steps, edges, inputs and notices.
func ofWaits() []planned {
	return []planned{
		{"UnknownSources", queries.UnknownSources, "SOURCES"},
		{"AddEdges", queries.AddEdges, "WAITERS, SOURCES, WAITERS, ONES, ONES"},
		{"CallersHeld", queries.CallersHeld, "SOURCES, SOURCES"},
		{"BeginCalls", queries.BeginCalls, "SOURCES, FALSES, WAITERS, NAMES, SOURCES, SOURCES, NAMES, ONES, 2"},
		{"WaitersOf", queries.WaitersOf, "HUB, WAITER, 1000"},
		{"EdgesOfWaiters", queries.EdgesOfWaiters, "WAITERS"},
		{"AwaitEnds", queries.AwaitEnds, "SOURCES"},
		{"MeetEdges", queries.MeetEdges, "WAITERS, SOURCES, ONES"},
		{"AwaitingChildren", queries.AwaitingChildren, "WAITERS"},
		{"ArrivedChildren", queries.ArrivedChildren, "WAITERS, NAMES"},
		{"OutcomesOf", queries.OutcomesOf, "SOURCES"},
		{"SourcesOf", queries.SourcesOf, "WAITER, 20"},
		{"WaitersFor", queries.WaitersFor, "HUB, 20"},
		{"ClockOfRuns", queries.ClockOfRuns, "WAITERS"},
		{"StepsOf", queries.StepsOf, "WAITERS"},
		{"InputsOf", queries.InputsOf, "WAITERS"},
		{"StepOf", queries.StepOf, "WAITER, 'go'"},
		{"InputOf", queries.InputOf, "WAITER, 'go'"},
		{"RecordSteps", queries.RecordSteps, "SOURCES, SOURCES, NAMES, ONES, ONES, ONES, VALUES, NAMES, NAMES"},
		{"StepFates", queries.StepFates, "SOURCES, SOURCES, NAMES"},
		{"BeginWait", queries.BeginWait, "SOURCE, SOURCE, null, 1, 0, 3, 'asleep'"},
		{"GiveUp", queries.GiveUp, "SOURCE, SOURCE, 'late'"},
		{"RecordStepIn", queries.RecordStepIn, "SOURCE, 1, 0, 1, 'in', '1', '', ''"},
		{"ForgetSteps", queries.ForgetSteps, "WAITER, NAMES, 'ann'"},
		{"ForgetFailures", queries.ForgetFailures, "WAITERS"},
		{"SendInput", queries.SendInput, "WAITER, '1', 'more', '', 'd', 1000, 100000"},
		{"DigestOf", queries.DigestOf, "WAITER, 'go'"},
		{"Arrived", queries.Arrived, "WAITERS, NAMES"},
		{"LockNoticed", queries.LockNoticed, "WAITERS"},
		{"Awaiting", queries.Awaiting, "WAITERS, NAMES"},
		{"ReleaseReady", queries.ReleaseReady, "WAITERS"},
		{"ReleaseWaiting", queries.ReleaseWaiting, "WAITERS"},
		{"CountNotices", queries.CountNotices, "100"},
	}
}

// blocksOfWaits is how many blocks each of the statements reads for a hundred runs. What a
// statement changes is rolled back.
func blocksOfWaits(t *testing.T, db opened, conn *pgx.Conn) map[string]int {
	t.Helper()
	arguments := strings.NewReplacer("WAITERS", some("00000000-0000-7000-8001-%012x"), "SOURCES", some("00000000-0000-7000-8002-%012x"),
		"WAITER", "'00000000-0000-7000-8001-000000000065'", "SOURCE", "'00000000-0000-7000-8002-000000000065'", "HUB", "'00000000-0000-7000-8002-000000000000'",
		"NAMES", some("go"), "VALUES", some("1"), "ONES", some("1"), "FALSES", some("false"))
	found := map[string]int{}
	for _, one := range ofWaits() {
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		db.exec(t, conn, "prepare one as "+asSent(t, one.statement, db.schema+"."))
		found[one.name] = explained(t, conn, "execute one ("+arguments.Replace(one.arguments)+")")
		require.NoError(t, tx.Rollback(t.Context()))
		db.exec(t, conn, "deallocate one")
	}
	return found
}

// some are a hundred values as the literal of an array.
func some(format string) string {
	values := make([]string, 100)
	for i := range values {
		if values[i] = format; strings.Contains(format, "%") {
			values[i] = fmt.Sprintf(format, 100+i)
		}
	}
	return "'{" + strings.Join(values, ",") + "}'"
}

// What runs that wait cost the statements of a round does not grow with those that it does not look
// at: where nothing was ever analyzed, where all was, and where a transaction holds what was deleted.
func TestWhatWaitsIsFoundByItsIndexes(t *testing.T) {
	t.Parallel()
	many := manyWaiting(t)
	for _, analyzed := range []string{"never", "before", "after"} {
		t.Run("analyzed "+analyzed, func(t *testing.T) {
			t.Parallel()
			db := openFresh(t, pgtest.Server(t))
			_, err := db.Enqueue(t.Context(), newRuns(1)...)
			require.NoError(t, err)
			conn := connect(t, db.url)
			db.exec(t, conn, "set search_path = "+db.schema+"; set enable_seqscan = off; set enable_bitmapscan = off; set jit = off; set plan_cache_mode = force_generic_plan")
			waitingRows(t, db, conn, 0, 1000)
			if analyzed == "before" {
				db.exec(t, conn, "analyze")
			}
			few := blocksOfWaits(t, db, conn)
			waitingRows(t, db, conn, 1000, many)
			if analyzed == "after" {
				db.exec(t, conn, "analyze")
			}
			for name, blocks := range blocksOfWaits(t, db, conn) {
				t.Logf("%s: %d blocks of few, %d of many", name, few[name], blocks)
				require.LessOrEqual(t, blocks, 3*few[name]+300, name)
			}
		})
	}
}

// While a transaction holds an old snapshot, the notices that were taken stay in the index. Rounds
// begin behind them, except for a twentieth of the time; and one that was committed late is found.
func TestRoundsDoNotStepOverTheNoticesThatWereTaken(t *testing.T) {
	t.Parallel()
	db := openFresh(t, pgtest.Server(t))
	conn, holder, sender := connect(t, db.url), connect(t, db.url), connect(t, db.url)
	for _, one := range []*pgx.Conn{conn, holder, sender} {
		db.exec(t, one, "set search_path = "+db.schema)
	}
	db.exec(t, holder, "begin isolation level repeatable read; select count(*) from runs")
	db.exec(t, conn, fmt.Sprintf("insert into notices (due_at, run_id) select now() - interval '1 minute' + i * interval '1 microsecond', gen_random_uuid() from generate_series(1, %d) i", manyWaiting(t)))
	late := "begin; insert into notices (due_at, run_id) values (now() - interval '10 seconds', gen_random_uuid())"
	db.exec(t, sender, late)
	drain := func() (taken int) {
		for next := time.Duration(0); next >= 0; {
			result, err := db.Release(t.Context(), store.ReleaseRequest{Limit: 1000})
			require.NoError(t, err)
			taken, next = taken+result.Taken, result.Next
		}
		return taken
	}
	require.Equal(t, manyWaiting(t), drain())
	cost := func(since string) int {
		db.exec(t, conn, "set enable_seqscan = off; set enable_bitmapscan = off; prepare take as "+asSent(t, queries.TakeNotices, db.schema+"."))
		defer db.exec(t, conn, "deallocate take")
		return explained(t, conn, "execute take ('"+since+"', 1000)")
	}
	var behind string
	require.NoError(t, conn.QueryRow(t.Context(), "select (now() - interval '2 seconds')::text").Scan(&behind))
	require.Less(t, 20*cost(behind), cost("-infinity"))
	db.exec(t, sender, "commit")
	require.Equal(t, 1, drain(), "the one that was committed late")
	db.exec(t, holder, "rollback")
}
