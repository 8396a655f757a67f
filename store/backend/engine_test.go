package backend_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store/backend"
)

func TestTheEngineOfAStoreIsAtHand(t *testing.T) {
	t.Parallel()
	open := func(dsn string) backend.Store {
		store, err := backend.Open(t.Context(), dsn, backend.Config{})
		require.NoError(t, err)
		t.Cleanup(store.Close)
		return store
	}
	pg, file, memory := open(pgtest.Database(t)), open("sqlite:"+filepath.Join(t.TempDir(), "x.db")), open("memory:")
	require.NotNil(t, backend.Postgres(pg))
	require.Same(t, backend.Postgres(pg), backend.Postgres(backend.Postgres(pg)))
	require.Nil(t, backend.SQLite(pg))
	require.NotNil(t, backend.SQLite(file))
	require.Nil(t, backend.Postgres(file))
	require.Nil(t, backend.Postgres(memory))
	require.Nil(t, backend.SQLite(memory))
}
