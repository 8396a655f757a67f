package backend_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
	"github.com/durable-worker/durable-worker/store/postgres"
)

func TestConnectionStrings(t *testing.T) {
	t.Parallel()
	services := filepath.Join(t.TempDir(), "services")
	require.NoError(t, os.WriteFile(services, []byte("[app]\nhost=db.example\nport=7\nuser=ann\npassword=canary\ndbname=app\nsslmode=verify-full\n"), 0o600))
	tests := []struct {
		dsn, redacted       string
		embedded, ephemeral bool
	}{
		{"sqlite:durable.db", "sqlite:durable.db", true, false},
		{"sqlite:/var/lib/x.db", "sqlite:/var/lib/x.db", true, false},
		{"sqlite:///var/lib/x.db", "sqlite:///var/lib/x.db", true, false},
		{"memory:", "memory:", true, true},
		{"postgres://u@h/db", "postgres://u@h:5432/db?sslmode=prefer", false, false},
		{"postgresql://u:canary@h:1/db?sslmode=require&application_name=canary", "postgres://u@h:1/db?sslmode=require", false, false},
		{"postgres://h/db?password=canary&user=u&sslmode=disable", "postgres://u@h:5432/db?sslmode=disable", false, false},
		{"postgres://127.0.0.1:1/x?user=u&password=a#canary", "postgres://u@127.0.0.1:1/x?sslmode=prefer", false, false},
		{"postgres://u:can%23a%40ry@[::1],b:7/x%20y?sslmode=verify-full", "postgres://u@[::1]:5432,b:7/x%20y?sslmode=verify-full", false, false},
		{"user=u host=h dbname=db password=canary sslmode=allow", "postgres://u@h:5432/db?sslmode=allow", false, false},
		{"user=u host=h password = 'can ary\\' canary' dbname=db", "postgres://u@h:5432/db?sslmode=prefer", false, false},
		{`host=h user=u dbname=db password=foo\ canary`, "postgres://u@h:5432/db?sslmode=prefer", false, false},
		{"host=h dbname=db user='u'password=canary", "postgres://u@h:5432/db?sslmode=prefer", false, false},
		{"host=/run/pg user=u dbname=db password=canary", "postgres://u@%2Frun%2Fpg:5432/db", false, false},
		{"service=app servicefile=" + services, "postgres://ann@db.example:7/app?sslmode=verify-full", false, false},
		{"host=h sslmode=verify-ca sslrootcert=/nowhere/at/all password=canary", "(unreadable)", false, false},
	}
	for _, test := range tests {
		require.NoError(t, backend.Check(test.dsn), test.dsn)
		require.Equal(t, test.redacted, backend.Redact(test.dsn), test.dsn)
		require.Equal(t, test.embedded, backend.Embedded(test.dsn), test.dsn)
		require.Equal(t, test.ephemeral, backend.Ephemeral(test.dsn), test.dsn)
	}
	for _, dsn := range []string{
		"", "canary", "mysql://u:canary@h/db", "postgres:canary", "postgres://u:can%zzary@h/db", "postgres://u:canary@[h/db",
		"postgres://a:123#canary@127.0.0.1:1/x", "postgres://a:123?canary@127.0.0.1:1/x", "postgres://a:123/canary@127.0.0.1:1/x", "postgres://a:s3@canary@127.0.0.1:1/x",
		"postgres://a:1234/canary?x=y@127.0.0.1/x", "postgres://h:canary/x", "postgres://h/x?canary", "host=h password='canary", "host=h canary", "service=app servicefile=/nowhere/canary",
		"ann:canary@h/db", "canary:x@h", "postgres://h/db?pool_max_conns=canary", "host=h sslmode=canary",
		"sqlite:", "sqlite://canary/x.db", "sqlite::memory:", "sqlite:canary.db?mode=ro", "memory:canary",
		"sqlite:canary.db/", "sqlite:canary.db/.", "sqlite:canary/..", "sqlite:.", "sqlite:..", "sqlite:/", "sqlite:///canary/", "c4n4ry!://x",
	} {
		err := backend.Check(dsn)
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "canary")
		require.NotContains(t, backend.Redact(dsn), "canary")
		_, err = backend.Open(t.Context(), dsn, backend.Config{})
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "canary")
		if strings.HasPrefix(dsn, "postgres") || strings.HasPrefix(dsn, "host") {
			_, err = postgres.Open(t.Context(), dsn, postgres.Config{})
			require.ErrorIs(t, err, store.ErrInvalid, dsn)
			require.NotContains(t, err.Error(), "canary")
		}
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

func TestAFileMayHaveToExist(t *testing.T) { //nolint:paralleltest // it changes the directory
	path := filepath.Join(t.TempDir(), "x.db")
	_, err := backend.Open(t.Context(), "sqlite:"+path, backend.Config{MustExist: true})
	require.ErrorIs(t, err, backend.ErrNoFile)
	require.ErrorContains(t, err, "there is no database file "+path)
	require.NoFileExists(t, path)

	t.Chdir(filepath.Dir(path))
	_, err = backend.Open(t.Context(), "sqlite:x.db", backend.Config{MustExist: true})
	require.ErrorContains(t, err, "there is no database file "+path, "it says where it was looked for")
	_, err = backend.Open(t.Context(), "sqlite:"+path+"/below/x.db", backend.Config{MustExist: true})
	require.Error(t, err)
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

// closed is the error of a driver whose connection has ended before the call.
type closed struct{}

func (closed) Error() string     { return "conn closed" }
func (closed) SafeToRetry() bool { return true }

func TestAConnectionThatHasEndedIsReported(t *testing.T) {
	t.Parallel()
	for _, err := range []error{closed{}, io.ErrUnexpectedEOF, refusal("57P01"), refusal("08006")} {
		require.True(t, backend.Disconnected(fmt.Errorf("cancel runs: %w", err)), err)
		require.True(t, backend.Transient(err), err)
	}
	for _, err := range []error{context.DeadlineExceeded, refusal("40001"), refusal("28P01"), errors.New("refused"), nil} {
		require.False(t, backend.Disconnected(err), err)
	}
}
