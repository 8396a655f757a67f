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
	left.drop()
	os.Exit(code)
}

// opened is a migrated store with the URL of its database and its schema.
type opened struct {
	*postgres.Store
	url, schema string
}

// openStore opens a store in a fresh schema of the shared server; options are
// added to the URL.
func openStore(t *testing.T, options string) opened {
	t.Helper()
	return openFresh(t, pgtest.Server(t)+options)
}

func openFresh(t *testing.T, url string) opened {
	t.Helper()
	schema := newSchema()
	t.Cleanup(func() { dropSchema(t, url, schema) })
	return openURL(t, url, schema)
}

func newSchema() string { return "t_" + strings.ToLower(rand.Text()[:16]) }

func dropSchema(t *testing.T, url, schema string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	require.NoError(t, err)
	_, err = conn.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+schema+" CASCADE")
	require.NoError(t, err)
	require.NoError(t, conn.Close(context.Background()))
}

func openURL(t *testing.T, url, schema string) opened {
	t.Helper()
	store, err := postgres.Open(t.Context(), url, postgres.Config{Schema: schema, MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
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
	conn := connect(t, o.url)
	tables := map[string][]string{
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
	}
	batch := &pgx.Batch{}
	for table, columns := range tables {
		for _, column := range columns {
			batch.Queue(fmt.Sprintf("UPDATE %s.%s SET %s = %s - $1::bigint::float8 * interval '1 microsecond' WHERE isfinite(%s)", o.schema, table, column, column, column),
				d.Microseconds())
		}
	}
	batch.Queue(fmt.Sprintf("UPDATE %s.gates SET tat = tat - 1000 * $1::bigint, bucket_at = ARRAY(SELECT at - $1::bigint FROM pg_catalog.unnest(bucket_at) AS at), since = since - $1::bigint, last_at = last_at - $1::bigint", o.schema), d.Microseconds())
	batch.Queue(fmt.Sprintf(`UPDATE %s.jobs SET code = (
		SELECT pg_catalog.json_agg(pg_catalog.json_build_object('at', (said OPERATOR(pg_catalog.->>) 'at')::bigint - $1::bigint, 'code', said OPERATOR(pg_catalog.->) 'code')) FROM pg_catalog.json_array_elements(code) said)`, o.schema), d.Microseconds())
	// Rows that move to the place of others: all are taken out before one is put in.
	batch.Queue(fmt.Sprintf(`WITH taken AS (DELETE FROM %[1]s.stats RETURNING *)
		INSERT INTO %[1]s.stats SELECT span, queue, job, at - $1::bigint::float8 * interval '1 microsecond',
		enqueued, succeeded, failed, dead, cancelled, crashed, busy, wait, took FROM taken ORDER BY at`, o.schema), d.Microseconds())
	require.NoError(t, conn.SendBatch(t.Context(), batch).Close())
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
