package postgres_test

import (
	"bytes"
	"hash/fnv"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store/postgres"
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

func TestSchemaDroppedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	store := openURL(t, pgtest.Database(t), "durable")
	_, err := store.Enqueue(t.Context(), newRun(durable.Priority(1)), newRun())
	require.NoError(t, err)
	a, b := worker("a"), worker("b")
	claim(t, store, a, 1, time.Minute)
	claim(t, store, b, 1, time.Minute) // its number is 2
	conn := connect(t, store.url)
	_, err = conn.Exec(t.Context(), "drop schema durable cascade")
	require.NoError(t, err)
	_, err = store.Enqueue(t.Context(), newRun())
	require.ErrorIs(t, err, postgres.ErrSchema)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	receipts, err := store.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
	_, runs := claim(t, store, b, 1, time.Minute)
	require.Len(t, runs, 1)
	record, err := store.Run(t.Context(), receipts[0].ID)
	require.NoError(t, err)
	require.Equal(t, "mail", record.Job)
	require.Equal(t, "b", *record.Worker)
}
