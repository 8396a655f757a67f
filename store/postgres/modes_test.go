package postgres_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
	"github.com/durable-worker/durable-worker/store/storetest"
)

// testMode runs the suite on a database, a server or a role that is not as
// others are: the parts that send most kinds of statements, or with
// DURABLE_TEST_MODES=full (make modes) all of it.
func testMode(t *testing.T, backend storetest.Backend, more ...string) {
	t.Helper()
	if os.Getenv("DURABLE_TEST_MODES") != "full" {
		backend.Groups = append([]string{"transcripts", "claim", "settle", "sweep", "transaction", "timetable"}, more...)
	}
	storetest.TestStore(t, backend)
}

// pooled is a server behind a transaction pooler that keeps no prepared
// statements between transactions. The mode that prepares nothing sends every
// parameter as text, so each type has to find its own way.
func pooled(t *testing.T) string {
	return pgtest.Pooler(t) + "&default_query_exec_mode=exec"
}

func TestStoreBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	testContract(t, pooled(t), true)
}

func TestLocksBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	testLocks(t, pooled(t), true)
}

// A role may have another isolation by default; ours is read committed.
func TestStoreWhereTransactionsAreSerializable(t *testing.T) {
	t.Parallel()
	testContract(t, pgtest.Server(t)+"&default_transaction_isolation=serializable", false)
}

func TestLocksWhereTransactionsAreSerializable(t *testing.T) {
	t.Parallel()
	testLocks(t, pgtest.Server(t)+"&default_transaction_isolation=serializable", false)
}

// Debezium, and upgrades by logical replication, publish all tables.
func TestStoreUnderAPublicationOfAllTables(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{Settings: map[string]string{"wal_level": "logical"}})
	_, err := connect(t, server.URL()).Exec(t.Context(), "create publication everything for all tables")
	require.NoError(t, err)
	testMode(t, contract(server.URL(), false))
}

// A dump, or a forgotten transaction, keeps every dead row.
func TestStoreWhileASnapshotIsHeld(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	tx, err := connect(t, url).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "select count(*) from pg_class")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) })
	testMode(t, contract(url, false))
}

// With one connection each, nothing may ask for a second while it has one.
func TestStoreWithOneConnection(t *testing.T) {
	t.Parallel()
	backend := contract(pgtest.Server(t), false)
	backend.New = func(t *testing.T) store.Store {
		migrated := openFresh(t, pgtest.Server(t))
		store, err := postgres.Open(t.Context(), migrated.url, postgres.Config{Schema: migrated.schema, MaxConns: 1})
		require.NoError(t, err)
		t.Cleanup(store.Close)
		return opened{store, migrated.url, migrated.schema}
	}
	testMode(t, backend)
}

// The workers' role has the rights that Grants gives it and no others.
func TestStoreAsAWorkersRole(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	role := newRole(t, server)
	backend := contract(server, false)
	backend.New = func(t *testing.T) store.Store { return openAs(t, openFresh(t, server), postgres.RoleWorker, role) }
	backend.Advance = func(t *testing.T, s store.Store, d time.Duration) {
		o := s.(opened)
		o.url = server // the owner's: a worker may not change the audit
		o.shift(t, d)
	}
	// There is no other test of the privileges: every kind of statement is sent.
	testMode(t, backend, "enqueue", "renew", "keys", "inspect", "operate", "queues", "schedules", "listen", "progress", "trace", "under")
}

// The last days of a year are where rules of time zones without a last change
// take over, which Go has with its own zone data only.
func TestStoreAtTheEndOf2028(t *testing.T) {
	t.Parallel()
	if os.Getenv("ZONEINFO") == "" {
		again(t, "ZONEINFO="+goZones(t))
		return
	}
	at := time.Date(2028, 12, 30, 12, 0, 0, 0, time.UTC)
	server := pgtest.StartAt(t, at).URL()
	conn := connect(t, server)
	now := func() (now time.Time) {
		require.NoError(t, conn.QueryRow(t.Context(), "select clock_timestamp()").Scan(&now))
		return now
	}
	first := now()
	require.WithinDuration(t, at, first, 5*time.Minute)
	require.Eventually(t, func() bool { return now().After(first) }, time.Minute, time.Millisecond)
	t.Run("schedules", func(t *testing.T) { t.Parallel(); planEverywhere(t, openFresh(t, server)) })
	t.Run("suite", func(t *testing.T) { t.Parallel(); testMode(t, contract(server, false)) })
}
