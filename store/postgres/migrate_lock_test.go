package postgres_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// text is what a logger has written, for tests that wait for it.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *text) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(line)
}

func (l *text) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), part)
}

// before5 is a store whose database lacks the migrations from the fifth on.
func before5(t *testing.T, log *text) (*postgres.Store, string) {
	t.Helper()
	url := pgtest.Database(t)
	older, _, cut := strings.Cut(postgres.MigrationsSQL("durable"), "-- 0005")
	require.True(t, cut)
	_, err := connect(t, url).Exec(t.Context(), older)
	require.NoError(t, err)
	store, err := postgres.Open(t.Context(), url, postgres.Config{MaxConns: 1, Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store, url
}

// A migration that waits for a table makes everybody wait behind it: behind a
// dump or an idle transaction it has to step back, or all workers lose their
// leases.
func TestMigrationStepsBackBehindAReader(t *testing.T) {
	t.Parallel()
	log := &text{}
	store, url := before5(t, log)
	reader, err := connect(t, url+"&application_name=report").Begin(t.Context())
	require.NoError(t, err)
	_, err = reader.Exec(t.Context(), "select count(*) from durable.leases")
	require.NoError(t, err)

	migrated := make(chan error, 1)
	go func() {
		_, err := store.Migrate(context.WithoutCancel(t.Context()))
		migrated <- err
	}()
	beats := connect(t, url)
	_, err = beats.Exec(t.Context(), "set lock_timeout = '8s'") // four times as long as a step may wait
	require.NoError(t, err)
	for log.count("the migration waits for tables that are in use") < 2 {
		_, err := beats.Exec(t.Context(), "update durable.leases set expires_at = now() where false")
		require.NoError(t, err, "a heartbeat waits for the migration")
		require.Empty(t, migrated, "it has not waited")
	}
	require.NotZero(t, log.count("(report, role durable, idle in transaction, open for"), "it says whom it waits for")
	require.NotZero(t, log.count("select count(*) from durable.leases"))
	require.NoError(t, reader.Rollback(t.Context()))
	require.NoError(t, <-migrated)
	have, want, _, err := store.Schema(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, have)
}

func TestMigrationThatWaitsCanBeCancelled(t *testing.T) {
	t.Parallel()
	log := &text{}
	store, url := before5(t, log)
	reader, err := connect(t, url).Begin(t.Context())
	require.NoError(t, err)
	_, err = reader.Exec(t.Context(), "select count(*) from durable.leases")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	migrated := make(chan error, 1)
	go func() {
		_, err := store.Migrate(ctx)
		migrated <- err
	}()
	require.Eventually(t, func() bool { return log.count("waits for tables") > 0 }, time.Minute, 10*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-migrated, context.Canceled)
	require.NoError(t, reader.Rollback(t.Context()))
	have, _, _, err := store.Schema(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, have)
}
