package postgres_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
	"github.com/durable-worker/durable-worker/store/storetest"
)

// parallelTests is how many tests run concurrently, unless -parallel or more CPUs say otherwise:
// each mostly waits, for its server or for time to pass.
const parallelTests = 6

func TestMain(m *testing.M) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel").Value; parallel.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) && runtime.GOMAXPROCS(0) < parallelTests {
		_ = parallel.Set(strconv.Itoa(parallelTests))
	}
	code := m.Run()
	dropLeft()
	os.Exit(code)
}

// opened is a migrated store with the URL of its database and its schema.
type opened struct {
	*postgres.Store
	url, schema string
}

// openStore opens a store in a schema of the shared server in which there is nothing;
// options are added to the URL. The test may change the tables too: see openUnchanged.
func openStore(t *testing.T, options string) opened {
	t.Helper()
	return openUnchanged(t, pgtest.Server(t), options)
}

// openFresh opens a store in a schema that no other test has used.
func openFresh(t *testing.T, url string) opened {
	t.Helper()
	schema := newSchema()
	t.Cleanup(func() { dropSchema(t, url, schema) })
	return openURL(t, url, schema)
}

func newSchema() string { return "t_" + strings.ToLower(rand.Text()[:16]) }

func dropSchema(t *testing.T, url, schema string) {
	t.Helper()
	require.NoError(t, execute(url, "DROP SCHEMA IF EXISTS "+schema+" CASCADE"))
}

func openURL(t *testing.T, url, schema string) opened {
	t.Helper()
	db := openMigrated(t, url, schema)
	_, err := db.Migrate(t.Context())
	require.NoError(t, err)
	return db
}

// openMigrated opens a store in a schema that is there.
func openMigrated(t *testing.T, url, schema string) opened {
	t.Helper()
	store, err := postgres.Open(t.Context(), url, postgres.Config{Schema: schema, MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return opened{store, url, schema}
}

// connect opens a connection of the test's own.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return conn
}

// shift moves every stored time back, so that time seems to have passed.
func (o opened) shift(t *testing.T, d time.Duration) {
	t.Helper()
	ago := fmt.Sprintf("%d::float8 * interval '1 microsecond'", d.Microseconds())
	nanos := fmt.Sprintf("%d::bigint", d.Nanoseconds())
	var all strings.Builder
	for table, columns := range map[string][]string{
		"runs":        {"created_at", "due_at", "started_at", "finished_at", "expires_at"},
		"ready":       {"due_at"},
		"leases":      {"acquired_at", "expires_at"},
		"beats":       {"expires_at", "before"},
		"attempts":    {"started_at", "ended_at"},
		"problems":    {"ended_at"},
		"schedules":   {"look_at", "next_at", "declared_at", "hash_at", "brought_at"},
		"skips":       {"first_at", "last_at"},
		"audit":       {"at"},
		"workers":     {"started_at", "seen_at", "reported_at"},
		"sweep":       {"began_at", "swept_at"},
		"unique_keys": {"held_to"},
		"waiting":     {"due_at"},
		"turns":       {"due_at"},
		"permits":     {"expires_at"},
		"kept":        {"expires_at"},
		"refunds":     {"charged_at"},
		"gates":       {"not_before"},
		"limits":      {"declared_at", "hash_at", "brought_at"},
		"steps":       {"at", "until"},
		"inputs":      {"at"},
		"notices":     {"due_at"},
		"batches":     {"created_at", "open_until", "ends_by", "look_at", "failed_at", "ended_at"},
		"deaths":      {"died_at"},
	} {
		set := make([]string, len(columns))
		for i, column := range columns {
			set[i] = fmt.Sprintf("%[1]s = CASE WHEN isfinite(%[1]s) THEN %[1]s - %[2]s ELSE %[1]s END", column, ago)
		}
		o.whereFilled(&all, table, fmt.Sprintf("UPDATE %s.%s SET %s", o.schema, table, strings.Join(set, ", ")))
	}
	o.whereFilled(&all, "gates", fmt.Sprintf("UPDATE %[1]s.gates SET tat = tat - %[2]s, bucket_at = ARRAY(SELECT at - %[3]d::bigint FROM pg_catalog.unnest(bucket_at) AS at), since = since - %[3]d::bigint, last_at = last_at - %[3]d::bigint", o.schema, nanos, d.Microseconds()))
	o.whereFilled(&all, "jobs", fmt.Sprintf(`UPDATE %s.jobs SET code = (
		SELECT pg_catalog.json_agg(pg_catalog.json_build_object('at', (said OPERATOR(pg_catalog.->>) 'at')::bigint - %d::bigint, 'code', said OPERATOR(pg_catalog.->) 'code')) FROM pg_catalog.json_array_elements(code) said)`, o.schema, d.Microseconds()))
	// Rows that move to the place of others: all are taken out before one is put in.
	o.whereFilled(&all, "stats", fmt.Sprintf(`WITH taken AS (DELETE FROM %[1]s.stats RETURNING *)
		INSERT INTO %[1]s.stats SELECT span, queue, job, at - %[2]s,
		enqueued, succeeded, failed, dead, cancelled, crashed, busy, wait, took FROM taken ORDER BY at`, o.schema, ago))
	require.NoError(t, execute(o.url, "DO $$ BEGIN\n"+all.String()+"END $$"))
}

// whereFilled adds a statement that is executed if its table has rows: most have none, and
// planning costs more than a look at a size.
func (o opened) whereFilled(to *strings.Builder, table, statement string) {
	fmt.Fprintf(to, "IF pg_catalog.pg_relation_size('%s.%s') > 0 THEN %s; END IF;\n", o.schema, table, statement)
}

func TestStore(t *testing.T) {
	t.Parallel()
	testContract(t, pgtest.Server(t), false)
}

func testContract(t *testing.T, url string, deaf bool) {
	storetest.TestStore(t, contract(url, deaf))
}

// contract is a store in an empty schema for each test.
func contract(url string, deaf bool) storetest.Backend {
	user := bindings[0]
	if deaf { // and it keeps no prepared statements
		user = bindings[1]
	}
	return storetest.Backend{
		Deaf: deaf,
		New: func(t *testing.T) store.Store {
			return openEmpty(t, url)
		},
		Advance: func(t *testing.T, s store.Store, d time.Duration) {
			s.(opened).shift(t, d)
		},
		Begin: func(t *testing.T, s store.Store) storetest.Transaction { return user.begin(t, s.(opened)) },
	}
}
