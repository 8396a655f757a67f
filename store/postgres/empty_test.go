package postgres_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store/postgres"
)

// left are the schemas that tests have left, to be used again.
var left = byURL[string]{} //nolint:gochecknoglobals // for all tests of a process

// openEmpty opens a store in a schema in which there is nothing: for tests that use the
// store alone and change no table, of which there are hundreds. To empty a schema that
// another test has left costs a tenth of migrating a fresh one.
func openEmpty(t *testing.T, url string) opened {
	t.Helper()
	schema := takeLeft(t, url)
	t.Cleanup(func() { leave(t, url, schema, empty(url, schema) == nil) })
	return openMigrated(t, url, schema)
}

// openUnchanged is openEmpty for tests that may change tables too: a schema that has not
// remained as it was migrated is dropped. To compare costs less than a hundredth of a migration.
func openUnchanged(t *testing.T, url, options string) opened {
	t.Helper()
	schema := takeLeft(t, url)
	t.Cleanup(func() {
		shape, err := shapeOf(url, schema)
		leave(t, url, schema, err == nil && shape == shapes.of(url) && empty(url, schema) == nil)
	})
	return openMigrated(t, url+options, schema)
}

// takeLeft returns a migrated schema in which there is nothing.
func takeLeft(t *testing.T, url string) string {
	t.Helper()
	if schema := left.take(url); schema != "" {
		return schema
	}
	schema := newSchema()
	db, err := postgres.Open(t.Context(), url, postgres.Config{Schema: schema, MaxConns: 1})
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Migrate(t.Context())
	require.NoError(t, err)
	if shapes.of(url) == "" {
		shape, err := shapeOf(url, schema)
		require.NoError(t, err)
		shapes.put(url, shape)
	}
	return schema
}

// leave keeps a schema for the next test that wants an empty one, if it is.
func leave(t *testing.T, url, schema string, isEmpty bool) {
	t.Helper()
	if t.Failed() || !isEmpty {
		dropSchema(t, url, schema)
		return
	}
	left.put(url, schema)
}

// shapes are what shapeOf says of a schema that was just migrated.
var shapes = byURL[string]{} //nolint:gochecknoglobals // for all tests of a process

// dropLeft drops the schemas that are left, where the server outlives the tests. Those of
// servers that were a test's own have gone with it.
func dropLeft() {
	if os.Getenv("DURABLE_TEST_DATABASE_URL") == "" {
		return
	}
	for url, schemas := range left.kept {
		for _, schema := range schemas {
			_ = execute(url, "DROP SCHEMA "+schema+" CASCADE")
		}
	}
}

// empty takes every row out of a schema but the one that tells its version, and lets
// numbers begin at one again.
func empty(url, schema string) error {
	return execute(url, `DO $$ BEGIN EXECUTE (
		SELECT coalesce('TRUNCATE ' || string_agg(oid::regclass::text, ', ') || ' RESTART IDENTITY', 'SELECT 1')
		FROM pg_catalog.pg_class
		WHERE relnamespace = '`+schema+`'::regnamespace
		  AND relkind = 'r'
		  AND relname <> 'meta'
		  AND pg_catalog.pg_relation_size(oid) > 0
	); END $$`)
}

// execute sends a statement, which waits 5 s for a lock at most, on a connection that is
// kept for the next one: tests send thousands, and a connection costs more than most.
func execute(url, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn := kept.take(url)
	if conn == nil || conn.Ping(ctx) != nil { // its server has stopped meanwhile
		var err error
		if conn, err = pgx.Connect(ctx, url); err != nil {
			return err
		}
	}
	if _, err := conn.Exec(ctx, "BEGIN; SET LOCAL lock_timeout = '5s'; "+sql+"; COMMIT", pgx.QueryExecModeSimpleProtocol); err != nil {
		_ = conn.Close(ctx)
		return err
	}
	kept.put(url, conn)
	return nil
}

// kept are the connections that execute keeps.
var kept = byURL[*pgx.Conn]{} //nolint:gochecknoglobals // for all tests of a process

// byURL keeps what is to be used again, of one server or database each.
type byURL[T any] struct {
	mu   sync.Mutex
	kept map[string][]T
}

// take returns one that was put there, or the zero value.
func (b *byURL[T]) take(url string) (one T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.kept[url]); n > 0 {
		one, b.kept[url] = b.kept[url][n-1], b.kept[url][:n-1]
	}
	return one
}

// of returns what was put there last, and leaves it, or the zero value.
func (b *byURL[T]) of(url string) (one T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.kept[url]); n > 0 {
		one = b.kept[url][n-1]
	}
	return one
}

func (b *byURL[T]) put(url string, one T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil {
		b.kept = map[string][]T{}
	}
	b.kept[url] = append(b.kept[url], one)
}
