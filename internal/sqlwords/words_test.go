package sqlwords_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/sqlwords"
)

const file = `-- Words; of a test.
create function durable.pending() returns smallint language sql immutable return 0;
create function durable.expires() returns text language sql immutable return 'x';
create function durable.is_ended(state smallint) returns boolean
    language sql immutable return (state >= 2);
create function durable.limit_of(gate bigint) returns int language sql immutable return (gate >> 43)::int;
create function durable.field(fields jsonb, id uuid) returns text
    language sql immutable return (fields -> (id::text) ->> 1);
create function durable.name_of(worker int) returns text language sql stable return (
    SELECT workers.name -- of the worker
    FROM durable.workers
    WHERE workers.worker = worker
      AND workers.state = durable.pending()
);
`

func TestWordsAreReplacedByWhatTheyStandFor(t *testing.T) {
	t.Parallel()
	words, err := sqlwords.Parse(file)
	require.NoError(t, err)
	for statement, want := range map[string]string{
		"state = durable.pending()":                                   "state = 0",
		"state = durable.pending( )::bigint":                          "state = 0::bigint",
		"until = durable.expires() OR true":                           "until = 'x' OR true",
		"NOT durable.is_ended(runs.state)":                            "NOT (runs.state >= 2)",
		"durable.limit_of(abs(own.gate)) = id":                        "(abs(own.gate) >> 43)::int = id",
		"durable.limit_of($1::bigint)":                                "($1::bigint >> 43)::int",
		"durable.limit_of(gates[1])":                                  "(gates[1] >> 43)::int",
		"durable.limit_of(a OR b)":                                    "((a OR b) >> 43)::int",
		"durable.limit_of(-a)":                                        "((-a) >> 43)::int",
		"durable.limit_of(coalesce(a, (b), ')'))":                     "((coalesce(a, (b), ')')) >> 43)::int",
		"durable.name_of(runs.worker)":                                "(\n    SELECT workers.name \n    FROM durable.workers\n    WHERE workers.worker = runs.worker\n      AND workers.state = 0\n)",
		"durable.limit_of(durable.pending())":                         "(0 >> 43)::int",
		"durable.field(\n    $1::jsonb,\n    runs.id\n) IS NULL":      "($1::jsonb -> (runs.id::text) ->> 1) IS NULL",
		"durable.enqueue('job', durable.pending())":                   "durable.enqueue('job', 0)",
		"'durable.pending()' -- durable.pending()\ndurable.pending()": "'durable.pending()' -- durable.pending()\n0",
		"'it''s' durable.pending()":                                   "'it''s' 0",
		"-- durable.pending()":                                        "-- durable.pending()",
		"'durable.pending()":                                          "'durable.pending()",
		"durable.pending(1), durable.is_ended(), durable.is_ended":    "durable.pending(1), durable.is_ended(), durable.is_ended",
		"durable.is_ended(a":                                          "durable.is_ended(a",
		"undurable.pending() + durable.pending":                       "undurable.pending() + durable.pending",
		"":                                                            "",
	} {
		require.Equal(t, want, words.SpellOut(statement))
	}
}

func TestAWordMeansTheSameWhereverItIsPut(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"state >= 2":            "want a literal, or an expression in brackets",
		"(a) OR (b)":            "want a literal, or an expression in brackets",
		"(a":                    "want a literal, or an expression in brackets",
		"-1":                    "want a literal, or an expression in brackets",
		"(a >> 43)::int = 1":    "want a literal, or an expression in brackets",
		"0; select 1":           "not a word: select 1",
		"0; create table a ()":  "not a word: create table a ()",
		"0;" + declared("(a)"):  "durable.word: declared twice",
		"(a >> 43)::int;" + " ": "",
		"'two words'":           "",
	} {
		words, err := sqlwords.Parse(declared(body))
		if want == "" {
			require.NoError(t, err, body)
			require.Len(t, words, 1)
			continue
		}
		require.ErrorContains(t, err, want, body)
	}
}

func declared(body string) string {
	return "create function durable.word(a int) returns int language sql immutable return " + body
}
