package backend_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/backend"
	"github.com/durable-worker/durable-worker/internal/pgtest"
)

func TestConnectionStrings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		dsn, redacted       string
		embedded, ephemeral bool
	}{
		{"sqlite:durable.db", "sqlite:durable.db", true, false},
		{"sqlite:/var/lib/x.db", "sqlite:/var/lib/x.db", true, false},
		{"sqlite:///var/lib/x.db", "sqlite:///var/lib/x.db", true, false},
		{"memory:", "memory:", true, true},
		{"postgres://h/db", "postgres://h/db", false, false},
		{"postgresql://u:canary@h:1/db?sslmode=require", "postgresql://u:xxxxx@h:1/db?sslmode=require", false, false},
		{"postgres://h/db?password=canary&user=u", "postgres://h/db?password=xxxxx&user=u", false, false},
		{"host=h dbname=db password=canary", "host=h dbname=db password=xxxxx", false, false},
		{"host=h password = 'can ary\\' canary' dbname=db", "host=h password = xxxxx dbname=db", false, false},
		{"service=app", "service=app", false, false},
	}
	for _, test := range tests {
		require.NoError(t, backend.Check(test.dsn), test.dsn)
		require.Equal(t, test.redacted, backend.Redact(test.dsn))
		require.Equal(t, test.embedded, backend.Embedded(test.dsn), test.dsn)
		require.Equal(t, test.ephemeral, backend.Ephemeral(test.dsn), test.dsn)
	}
	for _, dsn := range []string{
		"", "canary", "mysql://u:canary@h/db", "postgres:canary", "postgres://u:can%zzary@h/db", "postgres://u:canary@[h/db",
		"sqlite:", "sqlite://canary/x.db", "sqlite::memory:", "sqlite:canary.db?mode=ro", "memory:canary", "c4n4ry!://x",
	} {
		err := backend.Check(dsn)
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "canary")
		require.NotContains(t, backend.Redact(dsn), "canary")
		_, err = backend.Open(t.Context(), dsn, backend.Config{})
		require.Error(t, err, dsn)
		_, err = backend.MigrationsSQL(dsn, "durable")
		require.Error(t, err, dsn)
	}
}

func TestEveryEngineOpens(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{
		"memory": "memory:", "sqlite": "sqlite:" + filepath.Join(t.TempDir(), "x.db"), "postgres": pgtest.Database(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := backend.Open(t.Context(), dsn, backend.Config{Schema: "mine", MaxConns: 3})
			require.NoError(t, err)
			defer store.Close()
			have, want, _, err := store.Schema(t.Context())
			require.NoError(t, err)
			applied, err := store.Migrate(t.Context())
			require.NoError(t, err)
			require.Equal(t, want-have, applied)
			counts, err := store.Counts(t.Context())
			require.NoError(t, err)
			require.Len(t, counts, 5)
		})
	}
}

func TestAFileMayHaveToExist(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	_, err := backend.Open(t.Context(), "sqlite:"+path, backend.Config{MustExist: true})
	require.ErrorIs(t, err, backend.ErrNoFile)
	require.NoFileExists(t, path)
}

// refusal is an error of a server, by its SQLSTATE.
type refusal string

func (r refusal) Error() string { return "refused: " + string(r) }

func (r refusal) SQLState() string { return string(r) }

func TestAServerThatIsAwayIsTransientAndOneThatRefusesIsNot(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://ann:canary@127.0.0.1:1/db", "host=127.0.0.1 port=1 user=ann password=canary dbname=db", "postgres://ann:canary@nowhere.invalid/db"} {
		_, err := backend.Open(t.Context(), dsn, backend.Config{})
		require.Error(t, err)
		require.True(t, backend.Transient(err), err)
		require.NotContains(t, err.Error(), "canary")
	}
	_, err := backend.Open(t.Context(), pgtest.Server(t)+"&dbname=nowhere_at_all", backend.Config{})
	require.Error(t, err)
	require.False(t, backend.Transient(err), err)
	_, err = backend.Open(t.Context(), "sqlite:/nowhere/at/all/x.db", backend.Config{})
	require.Error(t, err)
	require.False(t, backend.Transient(err))
	require.False(t, backend.Transient(nil))
	for code, want := range map[string]bool{"57014": true, "55P03": true, "40001": true, "40P01": true, "57P03": true, "08006": true, "28P01": false, "42P01": false} {
		require.Equal(t, want, backend.Transient(fmt.Errorf("migrate: %w", refusal(code))), code)
	}
}
