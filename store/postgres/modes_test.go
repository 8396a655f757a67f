package postgres_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
	"github.com/durable-worker/durable-worker/store/storetest"
)

// mostKinds are the parts of the suite that send most kinds of statements.
var mostKinds = []string{"transcripts", "claim", "settle", "sweep", "transaction", "timetable"}

// testMode runs the suite on a database, a server or a role that is not as
// others are: the parts that send most kinds of statements and more, or with
// DURABLE_TEST_MODES=full (make modes) all of it.
func testMode(t *testing.T, backend storetest.Backend, more ...string) {
	t.Helper()
	if os.Getenv("DURABLE_TEST_MODES") != "full" {
		backend.Groups = slices.Concat(mostKinds, more)
	}
	storetest.TestStore(t, backend)
}

// mode is how a database, a server or a role differs from that of TestStore. None
// makes work what another one breaks, so that one suite runs in several of them.
type mode struct {
	planted      bool // functions are planted on the search path: see plant
	held         bool // a dump, or a forgotten transaction, keeps every dead row
	single       bool // with one connection each, nothing may ask for a second while it has one
	published    bool // all tables are, as Debezium and upgrades by logical replication do
	serializable bool // transactions are by the role's default; ours are read committed
	worker       bool // the role has the rights that Grants gives to workers and no others
	text         bool // nothing is prepared and parameters are sent as text, so each type has to find its own way
}

// modes are those that TestStoreInModes runs in one suite each, and what parts of it;
// none is one test in two of all. With DURABLE_TEST_MODES=full (make modes) each mode has all of the
// suite to itself.
var modes = map[string]struct {
	mode
	groups []string
}{
	"planted functions, a held snapshot, one connection":                                   {mode{planted: true, held: true, single: true}, mostKinds},
	"a published database, serializable transactions, a worker's role, parameters as text": {mode{published: true, serializable: true, worker: true, text: true}, nil},
}

func TestStoreInModes(t *testing.T) {
	t.Parallel()
	if os.Getenv("DURABLE_TEST_MODES") == "full" {
		for name, one := range map[string]mode{"planted": {planted: true}, "held": {held: true}, "single": {single: true},
			"published": {published: true}, "serializable": {serializable: true}, "worker": {worker: true}, "text": {text: true}} {
			t.Run(name, func(t *testing.T) { t.Parallel(); storetest.TestStore(t, one.backend(t)) })
		}
		return
	}
	for name, one := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := one.backend(t)
			if backend.Groups = one.groups; one.groups == nil {
				backend.Share = 2
			}
			storetest.TestStore(t, backend)
		})
	}
}

// backend is the engine in the mode.
func (m mode) backend(t *testing.T) storetest.Backend {
	t.Helper()
	server := pgtest.Server(t)
	switch {
	case m.planted:
		server = planted(t, server)
	case m.held:
		server = pgtest.Database(t)
	case m.published || m.worker:
		server = pgtest.StartPrivate(t, pgtest.Options{Settings: map[string]string{"wal_level": "logical"}}).URL()
	}
	if m.held {
		hold := connect(t, server)
		tx, err := hold.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "select count(*) from pg_class")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) })
	}
	if m.published {
		_, err := connect(t, server).Exec(t.Context(), "create publication everything for all tables")
		require.NoError(t, err)
	}
	if m.serializable {
		server += "&default_transaction_isolation=serializable"
	}
	if m.text {
		server += "&default_query_exec_mode=exec"
	}
	backend := contract(server, false)
	if m.single {
		backend.New = func(t *testing.T) store.Store {
			migrated := openEmpty(t, server)
			store, err := postgres.Open(t.Context(), server, postgres.Config{Schema: migrated.schema, MaxConns: 1})
			require.NoError(t, err)
			t.Cleanup(store.Close)
			return opened{store, migrated.url, migrated.schema}
		}
	}
	if m.worker {
		role := newRole(t, server)
		backend.New = func(t *testing.T) store.Store { return openAs(t, openEmpty(t, server), postgres.RoleWorker, role) }
		backend.Advance = func(t *testing.T, s store.Store, d time.Duration) {
			o := s.(opened)
			o.url = server // the owner's: a worker may not change the audit
			o.shift(t, d)
		}
	}
	return backend
}

// pooled is a server behind a transaction pooler that keeps no prepared
// statements between transactions.
func pooled(t *testing.T) string {
	return pgtest.Pooler(t) + "&default_query_exec_mode=exec"
}

// TestAPoolerWithoutItsOptionIsNamed requires that the error says what to add to the address.
func TestAPoolerWithoutItsOptionIsNamed(t *testing.T) {
	t.Parallel()
	url := pgtest.Pooler(t)
	schema := openURL(t, pgtest.Server(t), "").schema
	enqueue := func() error {
		db, err := postgres.Open(t.Context(), url, postgres.Config{Schema: schema, MaxConns: 2})
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = db.Enqueue(t.Context(), newRun())
		return err
	}
	var failed error
	for try := 0; try < 50 && failed == nil; try++ {
		failed = enqueue()
	}
	require.ErrorContains(t, failed, "default_query_exec_mode=exec")
}

// The plants are found on the connections of a pooler too, where the search path
// cannot be set once for a connection.
func TestStoreBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	backend := contract(planted(t, pooled(t)), true)
	if os.Getenv("DURABLE_TEST_MODES") != "full" {
		backend.Share = 2 // the statements are those of TestStoreInModes with parameters as text
	}
	testMode(t, backend, "keys", "under", "limits", "schedules", "recurring", "together",
		"operate", "inspect", "explain", "problems", "presence", "queues", "audit", "progress", "steps", "inputs", "stranded")
}

func TestLocksBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	testLocks(t, pooled(t), true)
}

func TestLocksWhereTransactionsAreSerializable(t *testing.T) {
	t.Parallel()
	testLocks(t, pgtest.Server(t)+"&default_transaction_isolation=serializable", false)
}

// The last days of a year are where rules of time zones without a last change
// take over, which Go has with its own zone data only.
func TestStoreAtTheEndOf2028(t *testing.T) {
	t.Parallel()
	if os.Getenv("ZONEINFO") == "" {
		again(t, "ZONEINFO="+goZones(t))
		return
	}
	at := time.Date(2028, 12, 30, 12, 17, 0, 0, time.UTC)
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
	t.Run("suite", func(t *testing.T) {
		t.Parallel()
		backend := contract(server, false)
		if os.Getenv("DURABLE_TEST_MODES") != "full" {
			backend.Groups = []string{"transcripts", "timetable", "recurring"} // where there are rules of zones, and a bit of all
		}
		storetest.TestStore(t, backend)
	})
}
