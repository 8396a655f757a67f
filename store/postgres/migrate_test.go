package postgres_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/db"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// catalog describes everything in a schema, its name left out.
func catalog(t *testing.T, conn *pgx.Conn, schema string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
		select format('column %s.%s %s %s default %s identity %s storage %s collation %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
		       case when a.attnotnull then 'not null' else 'null' end, coalesce(pg_get_expr(d.adbin, d.adrelid), '-'), a.attidentity, a.attstorage, a.attcollation)
		  || ' place ' || a.attnum
		from pg_attribute a join pg_class c on c.oid = a.attrelid left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
		where c.relnamespace = $1::text::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped
		union all select format('table %s %s replica identity %s', relname, reloptions, relreplident) from pg_class where relnamespace = $1::text::regnamespace and relkind in ('r', 'S', 'v')
		union all select 'index ' || indexdef from pg_indexes where schemaname::text = $1::text
		union all select 'identity ' || indexrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indrelid
		where i.indisreplident and c.relnamespace = $1::text::regnamespace
		union all select pg_get_functiondef(oid) || coalesce(proacl::text, 'default') from pg_proc where pronamespace = $1::text::regnamespace
		union all select format('constraint %s %s', conname, pg_get_constraintdef(oid)) from pg_constraint where connamespace = $1::text::regnamespace
		order by 1`, schema)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for i := range lines {
		lines[i] = strings.NewReplacer(`"`+schema+`".`, "", schema+".", "").Replace(lines[i])
	}
	return lines
}

func TestMigrationsAddUpToTheSchema(t *testing.T) {
	t.Parallel()
	store := openURL(t, pgtest.Database(t), "migrated")
	conn := connect(t, store.url)
	readable := strings.NewReplacer("schema durable;", "schema readable;", "durable.", "readable.").Replace(db.Schema)
	_, err := conn.Exec(t.Context(), readable)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), postgres.MigrationsSQL("plain"))
	require.NoError(t, err)

	want := catalog(t, conn, "readable")
	require.NotEmpty(t, want)
	require.Equal(t, want, catalog(t, conn, "migrated"), "the migrations make another schema than db/schema.sql")
	require.Equal(t, want, catalog(t, conn, "plain"), "MigrationsSQL makes another schema than Migrate")

	other, err := postgres.Open(t.Context(), store.url, postgres.Config{Schema: "plain"})
	require.NoError(t, err)
	t.Cleanup(other.Close)
	applied, err := other.Migrate(t.Context())
	require.NoError(t, err)
	require.Empty(t, applied)
}

func TestTwentyProgramsMigrateConcurrently(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read%20committed", "serializable"} {
		migrateTwenty(t, pgtest.Database(t)+"&default_transaction_isolation="+isolation)
	}
}

func migrateTwenty(t *testing.T, url string) {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	var steps []int
	for range 20 {
		store, err := postgres.Open(t.Context(), url, postgres.Config{MaxConns: 1})
		require.NoError(t, err)
		t.Cleanup(store.Close)
		all.Go(func() {
			applied, err := store.Migrate(t.Context())
			mu.Lock()
			defer mu.Unlock()
			for _, m := range applied {
				steps = append(steps, m.Version)
			}
			if err != nil {
				t.Error(err)
			}
			have, want, _, err := store.Schema(t.Context())
			if err != nil || have != want {
				t.Error(have, want, err)
			}
		})
	}
	all.Wait()
	slices.Sort(steps)
	require.Equal(t, slices.Compact(slices.Clone(steps)), steps, "each step is applied once")
	require.NotEmpty(t, steps)
}

func TestMigrationKilledInTheMiddleLeavesNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	conn := connect(t, url)
	_, err := conn.Exec(t.Context(), "create schema durable")
	require.NoError(t, err)
	obstacle, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = obstacle.Exec(t.Context(), "create table durable.leases ()") // the migration waits here
	require.NoError(t, err)

	store, err := postgres.Open(t.Context(), url, postgres.Config{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	failed := make(chan error)
	go func() {
		_, err := store.Migrate(context.WithoutCancel(t.Context()))
		failed <- err
	}()
	killer := connect(t, url)
	require.Eventually(t, func() bool {
		var killed bool
		err := killer.QueryRow(t.Context(), `select bool_or(pg_terminate_backend(pid)) from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock' and application_name = 'durable'`).Scan(&killed)
		return err == nil && killed
	}, 20*time.Second, 10*time.Millisecond)
	require.Error(t, <-failed)
	require.NoError(t, obstacle.Rollback(t.Context()))

	require.Empty(t, catalog(t, conn, "durable"))
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	_, err = store.Enqueue(t.Context(), newRun())
	require.NoError(t, err)
}

func TestSchemaVersions(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	reopen := func() *postgres.Store {
		store, err := postgres.Open(t.Context(), url, postgres.Config{})
		require.NoError(t, err)
		t.Cleanup(store.Close)
		return store
	}
	st := reopen()
	_, err := st.Enqueue(t.Context(), newRun())
	require.ErrorIs(t, err, postgres.ErrSchema)
	require.ErrorContains(t, err, "migrate up")
	_, err = st.Migrate(t.Context())
	require.NoError(t, err)
	_, err = st.Enqueue(t.Context(), newRun())
	require.NoError(t, err)

	conn := connect(t, url)
	_, err = conn.Exec(t.Context(), "update durable.meta set version = version + 7")
	require.NoError(t, err)
	_, err = reopen().Enqueue(t.Context(), newRun())
	require.NoError(t, err, "a newer schema that is compatible is served")
	_, err = conn.Exec(t.Context(), "update durable.meta set min_compatible = version")
	require.NoError(t, err)
	_, err = reopen().Enqueue(t.Context(), newRun())
	require.ErrorIs(t, err, postgres.ErrSchema)
	require.ErrorContains(t, err, "upgrade the program")
	require.NotErrorIs(t, err, store.ErrInvalid)
}

func TestOpenRefusesWhatCannotBeWritten(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	_, err := postgres.Open(t.Context(), url+"&default_transaction_read_only=on", postgres.Config{})
	require.ErrorContains(t, err, "allows only reads")
	for _, schema := range []string{"Durable", "a;b", "a b", "1a", strings.Repeat("a", 49)} {
		_, err = postgres.Open(t.Context(), url, postgres.Config{Schema: schema})
		require.ErrorIs(t, err, store.ErrInvalid)
	}
	for _, bad := range []string{"postgres://u:secret@h:port/x", "host=h password=secret port=x", "postgres://u:secret@127.0.0.1:1/x?connect_timeout=1"} {
		_, err = postgres.Open(t.Context(), bad, postgres.Config{})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "secret")
	}
}

// stopsWrites finds the indexes that a step builds over a table of an earlier step.
var stopsWrites = regexp.MustCompile(`(?m)^create (?:unique )?index (if not exists )?(\w+) on durable\.(\w+)`)

// TestWhatStopsWritesCanBeBuiltAhead checks each step that indexes a table which may be large:
// an operator can build the index ahead of it, and the page on upgrading names the index.
func TestWhatStopsWritesCanBeBuiltAhead(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/deploy.md")
	require.NoError(t, err)
	large := []string{"runs", "attempts", "ready", "waiting", "unique_keys"}
	const before = 7 // no published schema is older than that
	found := 0
	for _, name := range migrationFiles(t) {
		text, err := fs.ReadFile(db.Migrations, "migrations/"+name)
		require.NoError(t, err)
		for _, index := range stopsWrites.FindAllStringSubmatch(string(text), -1) {
			if name < fmt.Sprintf("%04d", before) || !slices.Contains(large, index[3]) || strings.Contains(string(text), "create table durable."+index[3]) {
				continue
			}
			found++
			require.NotEmpty(t, index[1], "%s: index %s: want IF NOT EXISTS", name, index[2])
			require.Contains(t, string(page), index[2], "docs/deploy.md has to say how to build it ahead")
		}
	}
	require.NotZero(t, found)
}

func migrationFiles(t *testing.T) (names []string) {
	t.Helper()
	entries, err := fs.ReadDir(db.Migrations, "migrations")
	require.NoError(t, err)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// TestAnIndexThatWasBuiltAheadIsKept requires that a step takes the index that is there,
// and refuses one whose build has failed.
func TestAnIndexThatWasBuiltAheadIsKept(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	conn := connect(t, url)
	exec := func(sql string) {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	first, _, found := strings.Cut(postgres.MigrationsSQL("ahead"), "-- 0011 ")
	require.True(t, found)
	exec(first)
	exec("create index runs_schedule on ahead.runs (schedule, id) where schedule is not null")
	oid := func() (oid uint32) {
		require.NoError(t, conn.QueryRow(t.Context(), "select 'ahead.runs_schedule'::regclass::oid").Scan(&oid))
		return oid
	}
	before := oid()
	store, err := postgres.Open(t.Context(), url, postgres.Config{Schema: "ahead"})
	require.NoError(t, err)
	t.Cleanup(store.Close)

	exec("update pg_index set indisvalid = false where indexrelid = 'ahead.runs_schedule'::regclass")
	_, err = store.Migrate(t.Context())
	require.ErrorContains(t, err, "incomplete indexes: runs_schedule")
	exec("update pg_index set indisvalid = true where indexrelid = 'ahead.runs_schedule'::regclass")
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, oid())
}

// TestAnIncompleteIndexIsNamed requires that doctor names an index that serves no query.
func TestAnIncompleteIndexIsNamed(t *testing.T) {
	t.Parallel()
	store := openURL(t, pgtest.Database(t), "incomplete")
	named := func() bool {
		findings, err := store.Examine(t.Context())
		require.NoError(t, err)
		return strings.Contains(fmt.Sprint(findings), "runs_key")
	}
	require.False(t, named())
	_, err := connect(t, store.url).Exec(t.Context(), "update pg_index set indisvalid = false where indexrelid = 'incomplete.runs_key'::regclass")
	require.NoError(t, err)
	require.True(t, named())
}
