package postgres_test

import (
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
)

// plant makes functions and operators in schema public, which is in the search_path
// of every role there, under the names that our statements call: each fits arguments
// for which pg_catalog has none that is exactly so, and fails. A role that may create
// functions on the search_path must not have the store's role call them.
const plant = `do $plant$
declare
    numbers text[] := '{smallint,int,bigint,numeric,float8,real}';
    others text[] := '{text,uuid,timestamptz,boolean,json,jsonb,interval}';
    arrays text[] := '{uuid[],text[],int[],smallint[],bigint[],timestamptz[],boolean[]}';
    pairs text[]; one text; two text; name text;
begin
    for one in select unnest(numbers || others || arrays) loop
        pairs := pairs || format('%s, %s', one, one);
        if one = any (numbers) then
            for two in select unnest(numbers || '{interval}') loop
                pairs := pairs || format('%s, %s', one, two) || format('%s, %s', two, one);
            end loop;
        end if;
        if one = any (arrays) then
            pairs := pairs || format('%s, %s', one, left(one, -2)) || format('%s, %s', left(one, -2), one);
        end if;
    end loop;
    create function public.refuse() returns void language plpgsql as 'begin raise exception ''a planted function was called''; end';
    foreach name in array $1 loop
        for one in select unnest(numbers || others || arrays || 'text, text, smallint'::text) union select unnest(pairs) loop
            if not exists (select from pg_catalog.pg_proc p where p.proname = name and p.pronamespace = 'pg_catalog'::regnamespace
                and pg_catalog.pg_get_function_identity_arguments(p.oid) = (select string_agg(x::regtype::text, ', ') from regexp_split_to_table(one, ', ') x)) then
                execute format('create function public.%I(%s) returns text language plpgsql as ''begin perform public.refuse(); end''', name, one);
            end if;
        end loop;
    end loop;
    for one in select distinct unnest(pairs) loop
        execute format('create function public.refused(%s) returns boolean language plpgsql as ''begin perform public.refuse(); end''', one);
        foreach name in array '{=,<>,<,>,<=,>=,+,-,*,/,%,||,@>,<@,&&,->,->>}'::text[] loop
            execute format('create operator public.%s (function = public.refused, leftarg = %s, rightarg = %s)', name, split_part(one, ', ', 1), split_part(one, ', ', 2));
        end loop;
    end loop;
end $plant$`

// planted is a database with the plants, in the server's own or a pooler's URL.
func planted(t *testing.T, server string) string {
	t.Helper()
	direct := pgtest.Database(t)
	conn := connect(t, direct+"&search_path=pg_catalog")
	rows, err := conn.Query(t.Context(), "select distinct proname::text from pg_proc where pronamespace = 'pg_catalog'::regnamespace and proname = any ($1)", calledNames(t))
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Subset(t, names, []string{"unnest", "cardinality", "format"})
	_, err = conn.Exec(t.Context(), strings.ReplaceAll(plant, "$1", "'{"+strings.Join(names, ",")+"}'::text[]"))
	require.NoError(t, err)
	at, err := url.Parse(server)
	require.NoError(t, err)
	in, err := url.Parse(direct)
	require.NoError(t, err)
	at.Path = in.Path
	return at.String()
}

// calledNames are the words of our statements that stand before a parenthesis.
func calledNames(t *testing.T) (names []string) {
	t.Helper()
	files := os.DirFS("../../db/queries")
	entries, err := fs.Glob(files, "*.sql")
	require.NoError(t, err)
	for _, entry := range entries {
		text, err := fs.ReadFile(files, entry)
		require.NoError(t, err)
		for _, call := range regexp.MustCompile(`\b([a-z_0-9]+)\(`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, call[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// The plants are found where no statement avoids them: this is what the suite
// among them rests on (TestStoreInModes, TestStoreBehindATransactionPooler).
func TestPlantedFunctionsAreCalledWithoutAPath(t *testing.T) {
	t.Parallel()
	conn := connect(t, planted(t, pgtest.Server(t)))
	for _, call := range []string{
		"select unnest('{}'::uuid[])", "select cardinality('{}'::uuid[])", "select format('%s', 'x'::text, 1::smallint)",
		"select 5::bigint * interval '1 second'", "select array_remove('{}'::text[], '')", "select '{}'::text[] @> '{}'::text[]",
	} {
		_, err := conn.Exec(t.Context(), call)
		require.ErrorContains(t, err, "planted", call)
	}
}
