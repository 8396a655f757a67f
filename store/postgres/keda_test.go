package postgres_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

// scalersQuery is what deploy/kubernetes/keda.yaml asks.
func scalersQuery(t *testing.T, schema string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/keda.yaml")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?s)query: \|\n(.*?)\n +targetQueryValue`).FindStringSubmatch(string(text))
	require.NotNil(t, found)
	return strings.ReplaceAll(found[1], "durable.", `"`+schema+`".`)
}

func TestTheScalersQueryCountsWhatWaits(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	query := scalersQuery(t, db.schema)
	conn, err := pgx.Connect(t.Context(), db.url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	count := func() (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&n))
		return n
	}
	require.NoError(t, db.Declare(t.Context(), store.Declaration{Worker: worker("w"), Jobs: []store.JobInfo{job.Info()}}))
	require.Zero(t, count())
	_, err = conn.Exec(t.Context(), `INSERT INTO "`+db.schema+`".lanes (queue, job, priority) SELECT 'default', 'invented-' || n, 0 FROM generate_series(1, 20000) n`)
	require.NoError(t, err)
	invented := newRuns(4)
	for i := range invented {
		invented[i].Job = "invented-1"
	}
	_, err = db.Enqueue(t.Context(), invented...)
	require.NoError(t, err)
	require.Zero(t, count(), "no one would execute them")
	_, err = db.Enqueue(t.Context(), newRuns(12_000)...)
	require.NoError(t, err)
	require.Equal(t, 10_000, count(), "bounded")
	for _, table := range []string{"ready", "lanes", "leases", "jobs"} { // others' tests are in the same database
		_, err = conn.Exec(t.Context(), `ANALYZE "`+db.schema+`".`+table)
		require.NoError(t, err)
	}
	rows, err := conn.Query(t.Context(), "EXPLAIN "+query)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, strings.Join(plan, "\n"), "ready_order", "whatever waits, an index is read")
	require.Contains(t, strings.Join(plan, "\n"), "lanes_queue_job_priority_key", "whatever names were invented, an index is read")

	_, err = conn.Exec(t.Context(), `DELETE FROM "`+db.schema+`".ready`)
	require.NoError(t, err)
	other, later, some := newRuns(5), newRuns(7), newRuns(3)
	for i := range other {
		other[i].Queue = "mail"
	}
	for i := range later {
		later[i].After = time.Hour
	}
	for _, runs := range [][]store.NewRun{other, later, some} {
		_, err = db.Enqueue(t.Context(), runs...)
		require.NoError(t, err)
	}
	require.Equal(t, 3, count(), "other queues and later runs do not count")
	r, err := request(t.Context(), db, worker("w"), 3, time.Minute)
	require.NoError(t, err)
	_, err = db.Claim(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, 1, count(), "a valid claim keeps a worker")
	_, err = conn.Exec(t.Context(), `UPDATE "`+db.schema+`".lanes SET paused = true`)
	require.NoError(t, err)
	_, err = db.Enqueue(t.Context(), newRuns(3)...)
	require.NoError(t, err)
	require.Equal(t, 1, count(), "a paused queue asks for no worker")
}
