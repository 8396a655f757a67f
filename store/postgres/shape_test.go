package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
)

// shapeOf tells what a schema consists of, and who may use it, from what other ones do: its
// relations, columns, constraints, triggers, functions and rights, and its version.
func shapeOf(url, schema string) (shape string, err error) {
	const parts = `
		SELECT 'schema', nspowner::text, nspacl::text FROM pg_namespace WHERE nspname = $1::text
		UNION ALL SELECT relname, concat(relkind, relpersistence, relrowsecurity, relowner), concat(reloptions, relacl) FROM pg_class
			WHERE relnamespace = $1::text::regnamespace
		UNION ALL SELECT relname || '.' || attname, concat(atttypid::regtype, attnotnull, attstattarget, attstorage, attidentity), concat(attacl, attoptions) FROM pg_attribute
			JOIN pg_class ON pg_class.oid = attrelid WHERE relnamespace = $1::text::regnamespace AND attnum > 0
		UNION ALL SELECT relname, pg_get_expr(adbin, adrelid), '' FROM pg_attrdef
			JOIN pg_class ON pg_class.oid = adrelid WHERE relnamespace = $1::text::regnamespace
		UNION ALL SELECT conname, pg_get_constraintdef(oid), convalidated::text FROM pg_constraint WHERE connamespace = $1::text::regnamespace
		UNION ALL SELECT relname || tgname, pg_get_triggerdef(pg_trigger.oid), tgenabled::text FROM pg_trigger
			JOIN pg_class ON pg_class.oid = tgrelid WHERE relnamespace = $1::text::regnamespace
		UNION ALL SELECT relname, pg_get_indexdef(indexrelid), concat(indisvalid, indisclustered) FROM pg_index
			JOIN pg_class ON pg_class.oid = indrelid WHERE relnamespace = $1::text::regnamespace
		UNION ALL SELECT rulename, ev_class::regclass::text, '' FROM pg_rewrite
			JOIN pg_class ON pg_class.oid = ev_class WHERE relnamespace = $1::text::regnamespace
		UNION ALL SELECT polname, '', '' FROM pg_policy JOIN pg_class ON pg_class.oid = polrelid WHERE relnamespace = $1::text::regnamespace
		UNION ALL SELECT 'published', tables, '' FROM (SELECT string_agg(pubname || relname, '') AS tables FROM pg_publication_rel
			JOIN pg_publication ON pg_publication.oid = prpubid JOIN pg_class ON pg_class.oid = prrelid WHERE relnamespace = $1::text::regnamespace) AS published
		UNION ALL SELECT proname, md5(replace(pg_get_functiondef(oid), $1::text, '')), proacl::text FROM pg_proc
			WHERE pronamespace = $1::text::regnamespace AND prokind IN ('f', 'p')`
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn := kept.take(url)
	if conn == nil || conn.Ping(ctx) != nil {
		if conn, err = pgx.Connect(ctx, url); err != nil {
			return "", err
		}
	}
	defer kept.put(url, conn)
	err = conn.QueryRow(ctx, "SELECT md5(replace(string_agg(concat_ws('|', name, what, more), E'\\n' ORDER BY name, what, more), $1::text, ''))"+
		" || (SELECT string_agg(concat('|', version, '|', min_compatible), '') FROM "+schema+".meta) FROM ("+parts+") AS parts (name, what, more)", pgx.QueryExecModeExec, schema).Scan(&shape)
	return shape, err
}

// A schema that a test has changed is not used again: each of these is seen.
func TestShape_TellsWhatATestHasChanged(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	db := openFresh(t, server)
	shape, err := shapeOf(server, db.schema)
	require.NoError(t, err)
	other, err := shapeOf(server, openFresh(t, server).schema)
	require.NoError(t, err)
	require.Equal(t, shape, other, "two that are as they were migrated")
	role := newRole(t, server)
	conn := connect(t, server)
	_, err = conn.Exec(t.Context(), "set search_path = "+db.schema)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), "drop owned by "+role+"; drop role "+role)
		require.NoError(t, err)
	})
	for _, change := range []string{
		"alter table runs set (autovacuum_enabled = off)",
		"alter table runs add column more int",
		"alter table runs alter column attempt set statistics 7",
		"alter table runs add constraint never check (attempt < 30000) not valid",
		"alter table runs validate constraint never",
		"create index also on runs (attempt, state)",
		"create table more (n int)",
		"grant select on runs to " + role,
		"grant select (claim_id) on leases to " + role,
		"grant usage on schema " + db.schema + " to " + role,
		"create function more() returns trigger language plpgsql as 'begin return new; end'",
		"create or replace function more() returns trigger language plpgsql as 'begin return null; end'",
		"create trigger more before insert on runs for each row execute function more()",
		"alter table runs disable trigger more",
		"create rule more as on delete to runs do instead nothing",
		"alter table runs enable row level security",
		"create policy more on runs",
		"update meta set version = version + 1",
		"alter table runs rename to others",
		"drop table progress cascade",
	} {
		_, err = conn.Exec(t.Context(), change)
		require.NoError(t, err, change)
		changed, err := shapeOf(server, db.schema)
		require.NoError(t, err)
		require.NotEqual(t, shape, changed, change)
		shape = changed
	}
}
