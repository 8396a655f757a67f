package dashboard_test

import (
	_ "embed" // the runs
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/operate"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

//go:embed testdata/large.sql
var large string

// pageWithin is how long a page may take on the server, whatever the number of runs.
const pageWithin = 100 * time.Millisecond

// searchWithin is how long one may take whose conditions no index serves.
const searchWithin = time.Second

// searches are the pages whose conditions no index serves and few runs meet: they read the
// newest runs, and then say how many and how far they came.
var searches = []string{"runs?tag=rare", "runs?tag=customer%3A45", "runs?error=no+such+text", "runs?args=no-such-text", "runs?metadata=tenant%3Dnone", "runs?worker=none"}

// TestPagesOfManyRuns opens every page of a store that is as full as DURABLE_TEST_RUNS
// says. With a large one (make large) it measures them, before and after the planner has
// its figures. DURABLE_TEST_LARGE_URL is a database to fill once and use again.
func TestPagesOfManyRuns(t *testing.T) {
	wanted, measured := 3000, false
	if text := os.Getenv("DURABLE_TEST_RUNS"); text != "" {
		var err error
		wanted, err = strconv.Atoi(text)
		require.NoError(t, err)
		measured = wanted >= 1_000_000
	}
	url := os.Getenv("DURABLE_TEST_LARGE_URL")
	if url == "" && measured {
		url = pgtest.StartPrivate(t, pgtest.Options{Settings: map[string]string{"shared_buffers": "512MB", "autovacuum": "off", "max_wal_size": "8GB", "synchronous_commit": "off"}}).URL()
	} else if url == "" {
		url = pgtest.Database(t)
	}
	db, err := postgres.Open(t.Context(), url, postgres.Config{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	_, err = db.Migrate(t.Context())
	require.NoError(t, err)
	if pgtest.Ask(t, url, "SELECT count(*)::text FROM durable.lanes WHERE job = 'job-00'") == "0" {
		fill(t, db, "x")
		load(t, db, url, wanted)
	}
	paths := largePaths(t, db, url)
	if measured && pgtest.Ask(t, url, "SELECT (reltuples < 0)::text FROM pg_class WHERE oid = 'durable.runs'::regclass") == "true" {
		measure(t, db, "never analyzed", measured, paths)
	}
	pgtest.Load(t, url, "VACUUM ANALYZE")
	measure(t, db, "analyzed", measured, paths)
}

// load stores the runs.
func load(t *testing.T, db *postgres.Store, url string, wanted int) {
	for i := range 50 {
		presence := store.Presence{Every: store.Duration(time.Hour), Capacity: 100, Executing: 10, Version: "v1.14.2", Queues: []string{"queue-0", "queue-1"}}
		for job := range 40 {
			presence.Jobs = append(presence.Jobs, fmt.Sprintf("job-%02d", job))
		}
		_, err := db.ReportWorker(t.Context(), store.WorkerReport{Worker: store.WorkerID{Name: fmt.Sprintf("web-%d", 10+i), Instance: uuid.New()}, Number: 1, Presence: presence})
		require.NoError(t, err)
	}
	op := operate.New(db, operate.Config{}).As("ada")
	for i := range 200 {
		_, err := op.SaveSchedule(t.Context(), store.Schedule{Name: fmt.Sprintf("schedule-%d", i), Rule: store.Cron("0 3 * * *", "Europe/Berlin"), Job: fmt.Sprintf("job-%02d", i%40), Queue: "queue-0", Args: []byte("{}"), MaxAttempts: 3})
		require.NoError(t, err)
	}
	began := time.Now()
	pgtest.Load(t, url, fmt.Sprintf("CREATE OR REPLACE FUNCTION durable.runs_wanted() RETURNS bigint IMMUTABLE LANGUAGE sql RETURN %d; %s; DROP FUNCTION durable.runs_wanted()", wanted, strings.TrimSuffix(strings.TrimSpace(large), ";")))
	t.Logf("%d runs stored in %v", wanted, time.Since(began).Round(time.Second))
}

// largePaths are the pages that are opened: every page, and the lists with each
// condition.
func largePaths(t *testing.T, db *postgres.Store, url string) []string {
	paths := []string{"", "?range=24h", "?range=7d", "?range=30d", "runs", "problems", "problems?acknowledged=true", "queues", "jobs", "jobs?name=job-01", "jobs?name=job-01&range=30d",
		"schedules", "schedules?name=schedule-7", "workers", "limits", "limits?name=api&key=x", "locks", "audit", "audit?kind=queue", "audit?by=nobody", "health", "bulk", "runs/new?job=job-01",
		"runs?job=job-01", "runs?queue=queue-3", "runs?state=succeeded&job=job-01", "runs?state=pending&queue=queue-1", "runs?state=dead&job=job-01", "runs?since=1h", "runs?since=72h&until=48h",
		"runs?schedule=schedule-7", "runs?key=order-107", "runs?worker=web-12", "runs?metadata=tenant%3Dtenant-3", "runs?state=dead&error=timeout", "runs?state=dead&ended_since=24h",
		"runs/change?action=retry&all=true&state=dead&job=job-01", "runs/change?action=cancel&all=true", "runs/change?action=delete&all=true&job=job-01"}
	for _, state := range store.States() {
		page, err := operate.New(db, operate.Config{}).Runs(t.Context(), store.Filter{States: []store.State{state}, Limit: 1})
		require.NoError(t, err)
		require.NotEmpty(t, page.Runs, state)
		paths = append(paths, "runs?state="+state.String(), "runs/"+page.Runs[0].ID.String())
	}
	middle := pgtest.Ask(t, url, "SELECT id::text FROM durable.runs WHERE id > (lpad(to_hex((extract(epoch FROM now() - interval '3 days') * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid ORDER BY id LIMIT 1")
	instance := pgtest.Ask(t, url, "SELECT instance::text FROM durable.workers WHERE name = 'web-12'")
	for _, state := range []string{"", "&state=dead", "&state=pending", "&state=succeeded"} {
		paths = append(paths, "runs?cursor="+middle+state)
	}
	return append(paths, "workers/"+instance)
}

// measure opens each page five times, each time with figures of its own around it, and
// prints the middle and the longest time.
func measure(t *testing.T, db *postgres.Store, name string, measured bool, paths []string) {
	t.Logf("%s: | page | ms, least of five | middle | longest |", name)
	var slow []string
	s := newSite(t, db)
	for _, path := range append(slices.Clone(paths), searches...) {
		times := make([]time.Duration, 1)
		if measured && !slices.Contains(searches, path) {
			times = make([]time.Duration, 5)
		}
		for i := range times {
			if measured {
				s = newSiteOf(t, db, s.op)
			}
			began := time.Now()
			a := s.do("GET", path, nil)
			times[i] = time.Since(began)
			if a.status != 200 {
				t.Errorf("%s: %d %s", path, a.status, s.log)
				break
			}
		}
		slices.Sort(times)
		if middle := times[len(times)/2]; measured {
			t.Logf("| %s | %.1f | %.1f | %.1f |", path, times[0].Seconds()*1000, middle.Seconds()*1000, times[len(times)-1].Seconds()*1000)
			most := pageWithin
			if slices.Contains(searches, path) {
				most = searchWithin
			}
			if middle > most {
				slow = append(slow, path)
			}
		}
	}
	if len(slow) > 0 {
		t.Errorf("%s: pages that take longer than %v, or searches longer than %v: %s", name, pageWithin, searchWithin, strings.Join(slow, " "))
	}
}
