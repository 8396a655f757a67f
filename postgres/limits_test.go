package postgres_test

import (
	"bytes"
	"hash/fnv"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/postgres"
)

func TestMigrateWaitsLongerThanTheRoleMay(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	key := fnv.New64a()
	_, _ = key.Write([]byte("durable/durable/migrate"))
	conn := connect(t, url)
	_, err := conn.Exec(t.Context(), "select pg_advisory_lock($1)", int64(key.Sum64())) //nolint:gosec // any 64 bits
	require.NoError(t, err)
	var log bytes.Buffer
	store, err := postgres.Open(t.Context(), url+"&statement_timeout=200ms&lock_timeout=200ms",
		postgres.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.Contains(t, log.String(), "statement_timeout=200ms")
	migrated := make(chan error)
	go func() {
		_, err := store.Migrate(t.Context())
		migrated <- err
	}()
	select {
	case err := <-migrated:
		t.Fatal("did not wait", err)
	case <-time.After(600 * time.Millisecond):
	}
	_, err = conn.Exec(t.Context(), "select pg_advisory_unlock_all()")
	require.NoError(t, err)
	require.NoError(t, <-migrated)
}
