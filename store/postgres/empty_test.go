package postgres_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// left are the schemas that tests have left, to be used again.
var left = leftSchemas{byURL: map[string][]string{}} //nolint:gochecknoglobals // for all tests of a process

type leftSchemas struct {
	mu    sync.Mutex
	byURL map[string][]string
}

// openEmpty opens a store in a schema in which there is nothing: for tests that use the
// store alone and change no table, of which there are hundreds. To empty a schema that
// another test has left costs a tenth of migrating a fresh one.
func openEmpty(t *testing.T, url string) opened {
	t.Helper()
	schema := left.take(url)
	if schema == "" {
		schema = newSchema()
	}
	t.Cleanup(func() {
		if t.Failed() || empty(url, schema) != nil {
			dropSchema(t, url, schema)
			return
		}
		left.put(url, schema)
	})
	return openURL(t, url, schema)
}

func (l *leftSchemas) take(url string) (schema string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.byURL[url]); n > 0 {
		schema, l.byURL[url] = l.byURL[url][n-1], l.byURL[url][:n-1]
	}
	return schema
}

func (l *leftSchemas) put(url, schema string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byURL[url] = append(l.byURL[url], schema)
}

// drop drops all of them, where the server outlives the tests. Those of servers that were
// a test's own have gone with it.
func (l *leftSchemas) drop() {
	if os.Getenv("DURABLE_TEST_DATABASE_URL") == "" {
		return
	}
	for url, schemas := range l.byURL {
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

// execute sends a statement, which waits 5 s for a lock at most.
func execute(url, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "BEGIN; SET LOCAL lock_timeout = '5s'; "+sql+"; COMMIT", pgx.QueryExecModeSimpleProtocol)
	return err
}
