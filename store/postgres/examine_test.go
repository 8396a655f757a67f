package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// found lists what an examination says beyond "ok", by name. What it says of the
// machine's pace is asked again, until the machine has a moment.
func found(t *testing.T, store *postgres.Store) (bad map[string]string) {
	t.Helper()
	for range 20 {
		bad = foundOnce(t, store)
		if bad["round trip"]+bad["notifications"]+bad["clock"] == "" {
			break
		}
	}
	return bad
}

func foundOnce(t *testing.T, db *postgres.Store) map[string]string {
	t.Helper()
	findings, err := db.Examine(t.Context())
	require.NoError(t, err)
	bad := map[string]string{}
	for _, one := range findings {
		require.NotEmpty(t, one.Text, one.Name)
		if one.Name == "role" { // the servers of tests know superusers only: TestExamineWarnsOfASuperuser
			continue
		}
		if one.Level == store.Fine {
			require.Empty(t, one.Hint, one.Name)
			continue
		}
		require.NotEmpty(t, one.Hint, one.Name)
		bad[one.Name] += fmt.Sprintf("%s: %s; ", one.Level, one.Text)
	}
	return bad
}

func TestExamineSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	c := pgtest.StartPrivate(t, pgtest.Options{Fsync: true})
	db := openURL(t, c.URL(), "durable")
	require.NoError(t, db.Declare(t.Context(), store.Declaration{Worker: worker("w"), Jobs: []store.JobInfo{{Name: newRun().Job, Queue: "default", MaxAttempts: 1}}}))
	_, err := db.Enqueue(t.Context(), newRuns(3)...)
	require.NoError(t, err)
	require.Empty(t, found(t, db.Store))

	stray := newRun()
	stray.Job = "stray"
	_, err = db.Enqueue(t.Context(), stray)
	require.NoError(t, err)
	r, err := request(t.Context(), db, worker("w"), 1, time.Minute)
	require.NoError(t, err)
	_, err = db.Claim(t.Context(), r)
	require.NoError(t, err)
	conn := connect(t, db.url)
	for _, statement := range []string{
		"INSERT INTO durable.queues VALUES ('mail', true)", "ALTER TABLE durable.ready SET (autovacuum_enabled = off)",
		"UPDATE durable.leases SET expires_at = now() - interval '2 minutes'",
	} {
		_, err = conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	bad := found(t, db.Store)
	require.Contains(t, bad["queues"], "paused: mail")
	require.Contains(t, bad["leases"], "1 expired more than 1m0s ago")
	require.Contains(t, bad["tables"], "autovacuum is switched off for ready")
	require.Len(t, bad, 3, bad)
}

func TestExamineJudgesTheServersSettings(t *testing.T) {
	t.Parallel()
	c := pgtest.StartPrivate(t, pgtest.Options{Settings: map[string]string{
		"autovacuum": "off", "max_connections": "20", "synchronous_commit": "off", "full_page_writes": "off",
		"default_transaction_isolation": "'repeatable read'", "statement_timeout": "'2s'",
	}})
	store, err := postgres.Open(t.Context(), c.URL(), postgres.Config{MaxConns: 50})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	bad := found(t, store)
	require.Contains(t, bad["durability"], "failed: synchronous_commit off, fsync false, full_page_writes false")
	require.Contains(t, bad["autovacuum"], "failed: off")
	require.Contains(t, bad["connections"], "a worker uses up to 60")
	require.Contains(t, bad["isolation"], "warning: repeatable read")
	require.Contains(t, bad["statement_timeout"], "warning: 2s")
	require.Len(t, bad, 5, "without a schema only the server is examined: %v", bad)
}

func TestExamineWarnsOfASuperuser(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	migrated := openFresh(t, server)
	role := func(db opened) store.Finding {
		findings, err := db.Examine(t.Context())
		require.NoError(t, err)
		at := slices.IndexFunc(findings, func(f store.Finding) bool { return f.Name == "role" })
		require.GreaterOrEqual(t, at, 0)
		return findings[at]
	}
	said := role(migrated)
	require.Equal(t, store.Warning, said.Level)
	require.Contains(t, said.Text, "durable is a superuser")
	require.Equal(t, store.Fine, role(openAs(t, migrated, postgres.RoleWorker, newRole(t, server))).Level)
}
