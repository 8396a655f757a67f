package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// full is a store whose role may open no more connections than it has, once limit says so.
type full struct {
	opened
	migrated opened // of the owner of the schema
	owner    *pgx.Conn
	role     string
}

// openFull opens a migrated store for a role of its own, and registers a worker.
func openFull(t *testing.T, parameters string) full {
	t.Helper()
	migrated := openURL(t, pgtest.Database(t), "durable")
	f := full{migrated: migrated, owner: connect(t, migrated.url), role: newRole(t, migrated.url)}
	t.Cleanup(func() {
		_, err := f.owner.Exec(context.Background(), fmt.Sprintf("select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = '%s'", f.role))
		require.NoError(t, err)
		_, err = f.owner.Exec(context.Background(), fmt.Sprintf("drop owned by %s; drop role %s", f.role, f.role))
		require.NoError(t, err)
	})
	statements, err := postgres.Grants(migrated.schema, postgres.RoleWorker, f.role)
	require.NoError(t, err)
	_, err = f.owner.Exec(t.Context(), statements)
	require.NoError(t, err)
	address, err := url.Parse(migrated.url + parameters)
	require.NoError(t, err)
	address.User = url.User(f.role)
	db, err := postgres.Open(t.Context(), address.String(), postgres.Config{Schema: migrated.schema})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	f.opened = opened{db, address.String(), migrated.schema}
	return f
}

// limit bounds the connections of the role; negative: it does not.
func (f full) limit(t *testing.T, connections int) {
	t.Helper()
	f.exec(t, f.owner, fmt.Sprintf("alter role %s connection limit %d", f.role, connections))
}

// pids returns the server processes of the role's connections, the oldest first.
func (f full) pids(t *testing.T) (pids []int32) {
	t.Helper()
	rows, err := f.owner.Query(t.Context(), "select pid from pg_stat_activity where usename = $1 order by backend_start", f.role)
	require.NoError(t, err)
	pids, err = pgx.CollectRows(rows, pgx.RowTo[int32])
	require.NoError(t, err)
	return pids
}

// beats returns how many connections for heartbeats there are.
func (f full) beats() int {
	for _, pool := range f.Pools() {
		if pool.Name == "beats" {
			return pool.Used + pool.Idle
		}
	}
	return 0
}

func (f full) renews(t *testing.T, claim lease.ClaimID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // as with a lease of 30 s
	defer cancel()
	renewed, err := f.Renew(ctx, []lease.ClaimID{claim}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, []lease.ClaimID{claim}, renewed)
}

func TestBeats_AMigrationKeepsTheirConnection(t *testing.T) {
	t.Parallel()
	db, err := postgres.Open(t.Context(), pgtest.Database(t), postgres.Config{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	f := full{opened: opened{Store: db}}
	require.Equal(t, 1, f.beats())
	_, err = db.Migrate(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, f.beats())
}

// The connection for heartbeats is lost on a server that accepts no other.
func TestBeats_GoOverAnyConnectionUntilTheirsIsOpenAgain(t *testing.T) {
	t.Parallel()
	f := openFull(t, "")
	beats := f.pids(t)
	require.Len(t, beats, 1, "that which has checked the server")
	_, err := f.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	r, runs := claim(t, f.opened, worker("w"), 1, time.Minute)
	require.Len(t, runs, 1)
	f.limit(t, 1)
	f.exec(t, f.owner, "select pg_terminate_backend($1, 5000)", beats[0])
	_, _ = f.Renew(t.Context(), []lease.ClaimID{r.Claim}, time.Minute) // it may be this one that sees that the connection has ended
	for range 3 {
		f.renews(t, r.Claim)
	}
	require.NotContains(t, f.pids(t), beats[0])
	require.Zero(t, f.beats())
	f.limit(t, -1)
	require.Eventually(t, func() bool { return f.beats() == 1 }, time.Minute, 20*time.Millisecond, "without a heartbeat")
	f.renews(t, r.Claim)
}

// Another connection of the process breaks, on a server that accepts no other.
func TestBeats_KeepTheirConnectionWhenAnotherBreaks(t *testing.T) {
	t.Parallel()
	f := openFull(t, "")
	beats := f.pids(t)
	require.Len(t, beats, 1)
	_, err := f.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	r, runs := claim(t, f.opened, worker("w"), 1, time.Minute)
	require.Len(t, runs, 1)
	f.renews(t, r.Claim)
	f.limit(t, 1)
	tx := hold(t, f.migrated, "workers", "true")
	touched := make(chan error)
	go func() { touched <- f.Touch(t.Context(), r.Worker) }()
	const waiting = "select count(*) from pg_stat_activity where usename = $1 and wait_event_type = 'Lock'"
	require.Eventually(t, func() bool { return f.count(t, f.owner, waiting, f.role) == 1 }, time.Minute, 10*time.Millisecond)
	f.exec(t, f.owner, "select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = $1 and wait_event_type = 'Lock'", f.role)
	require.Error(t, <-touched)
	require.NoError(t, tx.Rollback(t.Context()))
	for range 5 {
		f.renews(t, r.Claim)
		<-time.After(100 * time.Millisecond)
	}
	require.Contains(t, f.pids(t), beats[0])
}

func TestBeats_AnOldConnectionIsClosedWhenItsSuccessorIsThere(t *testing.T) {
	t.Parallel()
	f := openFull(t, "&pool_max_conn_lifetime=1s&pool_health_check_period=100ms")
	beats := f.pids(t)
	require.Len(t, beats, 1)
	_, _ = claim(t, f.opened, worker("w"), 1, time.Minute)
	f.limit(t, 1)
	began := time.Now()
	for time.Since(began) < 3*time.Second {
		require.Contains(t, f.pids(t), beats[0])
		<-time.After(50 * time.Millisecond)
	}
	f.limit(t, -1)
	require.Eventually(t, func() bool {
		pids := f.pids(t)
		return f.beats() == 1 && len(pids) > 0 && pids[0] != beats[0]
	}, time.Minute, 20*time.Millisecond)
}
