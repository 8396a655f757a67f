package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

// fillLanes stores a run of each of two jobs, and returns their lanes.
func fillLanes(t *testing.T, db opened) (rare, frequent int) {
	t.Helper()
	runs := newRuns(2)
	runs[1].Job = "frequent"
	_, err := db.Enqueue(t.Context(), runs...)
	require.NoError(t, err)
	conn := connect(t, db.url)
	ask := fmt.Sprintf("select id from %s.lanes where job = $1", db.schema)
	require.NoError(t, conn.QueryRow(t.Context(), ask, runs[0].Job).Scan(&rare))
	require.NoError(t, conn.QueryRow(t.Context(), ask, "frequent").Scan(&frequent))
	return rare, frequent
}

// The dead runs of a job are found that has few of them, however many others died since;
// of one that has many, the newest.
func TestProblemsOfAJobAmongMany(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	rare, frequent := fillLanes(t, db)
	die := func(lane, from, n int) {
		_, err := conn.Exec(t.Context(), fmt.Sprintf(`insert into %s.problems (run_id, ended_at, state, reason, lane, acknowledged_at)
			select lpad(to_hex(n), 32, '0')::uuid, now() - (30000 - n) * interval '1 second', 4, 'no. ' || n, $1, case when n %% 10 = 0 then now() end
			from generate_series($2::int, $3::int) n`, db.schema), lane, from, from+n-1)
		require.NoError(t, err)
	}
	die(rare, 1, 20)
	die(frequent, 21, 20_100)
	of := func(filter store.ProblemFilter) []store.Problem {
		problems, err := db.Problems(t.Context(), filter)
		require.NoError(t, err)
		return problems
	}
	open := of(store.ProblemFilter{Jobs: []string{"mail"}})
	require.Len(t, open, 18)
	require.Equal(t, "no. 19", open[0].Reason, "the newest death first")
	require.Equal(t, "no. 1", open[17].Reason)
	require.Len(t, of(store.ProblemFilter{Jobs: []string{"mail"}, Scope: store.AcknowledgedProblems}), 2)
	require.Len(t, of(store.ProblemFilter{Jobs: []string{"mail"}, Since: open[4].EndedAt}), 5)
	require.Empty(t, of(store.ProblemFilter{Jobs: []string{"mail"}, Queues: []string{"none"}}))

	many := of(store.ProblemFilter{Jobs: []string{"frequent"}})
	require.Len(t, many, store.MaxProblems)
	require.Equal(t, "no. 20119", many[0].Reason)
	require.Len(t, of(store.ProblemFilter{Jobs: []string{"frequent"}, Scope: store.AcknowledgedProblems}), 2010)
	require.Len(t, of(store.ProblemFilter{Jobs: []string{"frequent"}, Since: many[99].EndedAt}), 100)
	require.Len(t, of(store.ProblemFilter{Jobs: []string{"frequent", "mail"}, Limit: 7}), 7)
}

// Who does not wait gets a lower bound, and who waits the number.
func TestCountsForWhoDoesNotWaitAreBounded(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	lane, _ := fillLanes(t, db)
	_, err := conn.Exec(t.Context(), fmt.Sprintf(`with made as (
			insert into %[1]s.runs (id, due_at, lane, max_attempts, args, key)
			select lpad(to_hex(n), 32, '0')::uuid, now() + interval '1 hour', $1, 1, '{}', 'all' from generate_series(1, 10100) n
			returning id, lane, due_at
		)
		insert into %[1]s.ready (lane, due_at, run_id) select lane, due_at, id from made`, db.schema), lane)
	require.NoError(t, err)
	for _, c := range []struct {
		filter  store.Filter
		n       int64
		patient bool
	}{
		{store.Filter{Jobs: []string{"mail"}}, 10_101, true}, {store.Filter{Jobs: []string{"mail"}}, 5_000, false},
		{store.Filter{Key: "all"}, 10_100, true}, {store.Filter{Key: "all"}, 5_000, false},
		{store.Filter{Jobs: []string{"frequent"}}, 1, false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		if c.patient {
			ctx = t.Context()
		}
		c.filter.States = []store.State{store.Pending}
		counts, err := db.CountMatching(ctx, c.filter)
		require.NoError(t, err)
		require.Equal(t, store.Count{N: c.n, AtLeast: c.n == 5_000}, counts[store.Pending], "%+v", c)
	}
}

// A page that is filled in several tries has each run once, in order, and none is left out.
func TestListsContinueWhereATryHasEnded(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := connect(t, db.url)
	lane, _ := fillLanes(t, db)
	_, err := conn.Exec(t.Context(), fmt.Sprintf(`insert into %s.runs (id, due_at, lane, max_attempts, args, state, tags, metadata)
		select lpad(to_hex(n), 32, '0')::uuid, now(), $1, 1, '{}', 2, case when n %% 400 = 0 then array['some'] end, case when n %% 400 = 0 then '{"tenant":"a"}'::json when n %% 7 = 0 then '{"tenant":"b"}' end
		from generate_series(1, 25000) n`, db.schema), lane)
	require.NoError(t, err)
	for _, filter := range []store.Filter{{Tag: "some"}, {Metadata: store.Metadata{"tenant": "a"}}} {
		for _, limit := range []int{1, 2, 5, 12, 40, 49, 50, 51, 62, 100} {
			var found []store.RunID
			filter.Limit, filter.Before = limit, store.RunID{}
			for pages := 0; pages == 0 || filter.Before != (store.RunID{}); pages++ {
				page, err := db.Runs(t.Context(), filter)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page.Runs), limit)
				if len(page.Runs) < limit && page.Next != (store.RunID{}) {
					require.Equal(t, 20_000, page.Examined)
				}
				for i := range page.Runs {
					found = append(found, page.Runs[i].ID)
				}
				filter.Before = page.Next
				require.Less(t, pages, 70)
			}
			require.Len(t, found, 62)
			for i, id := range found {
				require.Equal(t, fmt.Sprintf("%032x", 24_800-400*i), fmt.Sprintf("%x", id[:]))
			}
		}
	}
}
