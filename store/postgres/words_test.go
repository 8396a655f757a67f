package postgres_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/db"
	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/internal/sqlwords"
	"github.com/durable-worker/durable-worker/store"
)

// asSent is a generated statement as the store sends it, with a prefix in place of the
// schema's name.
func asSent(t *testing.T, statement, prefix string) string {
	t.Helper()
	words, err := sqlwords.Parse(db.Words)
	require.NoError(t, err)
	return strings.ReplaceAll(words.SpellOut(statement), "durable.", prefix)
}

// meanings are what the words of db/words.sql have to return: the constants of Go.
var meanings = map[string]any{ //nolint:gochecknoglobals // a constant table
	"pending()": int16(store.Pending), "running()": int16(store.Running), "succeeded()": int16(store.Succeeded),
	"dead()": int16(store.Dead), "cancelled()": int16(store.Cancelled),
	"crash_retry()": int16(store.CrashRetry),
	"success()":     int16(store.Success), "crash()": int16(store.Crash),
	"step_tried()": int16(store.StepTried), "step_failed()": int16(store.StepFailed), "step_sleep()": int16(store.StepSleep), "step_input()": int16(store.StepInput),
	"step_children()": int16(store.StepChildren), "step_is_replaced(0::smallint)": store.StepTried.IsReplaced(), "step_is_replaced(1::smallint)": store.StepDone.IsReplaced(),
	"step_is_replaced(5::smallint)": store.StepChildren.IsReplaced(),
	"link_awaited()":                int16(store.LinkAwaited), "link_parent()": int16(store.LinkParent), "link_member()": int16(store.LinkMember),
	"want_of_batch()": int16(rules.WantOf(0, true)), "batch_succeeded()": int16(store.BatchSucceeded), "notice_member()": int16(rules.NoticeMember),
	"notice_input()": int16(rules.NoticeInput), "notice_look()": int16(rules.NoticeLook), "notice_ended()": int16(rules.NoticeEnded), "notice_orphan()": int16(rules.NoticeOrphan),
	"minute()":          int16(store.Minute),
	"limit_semaphore()": int16(store.LimitSemaphore),
	"full_default()":    int16(store.FullDefault), "full_wait()": int16(store.FullWait),
	"limit_active()": int16(store.LimitActive), "limit_removed()": int16(store.LimitRemoved),
	"until_settled()": string(store.UntilSettled), "until_finished()": string(store.UntilFinished),
	"until_finished_or_revived()": string(store.UntilFinishedOrRevived), "until_expires()": string(store.UntilExpires),
	"all_permits()": int64(admit.AllPermits),
	"tenth()":       int32((time.Second / 10).Microseconds()), "tenth_bits()": int32(1<<12 - 1),

	"nearly_full(80)": int32(69), "nearly_full(1)": int32(0), "unindexed(-7)": int32(-7),
	"part_of(7, 3::bigint)": int64(3), "part_of(7, 0::bigint)": int64(6),
	"step_of('2026-01-02 03:04:05+00'::timestamptz, 60000000::bigint) = '2026-01-02 03:04:00+00'": true,
	"is_more('{1}'::bigint[], '{github=a}'::text[])":                                              false, "is_more('{1}'::bigint[], '{github*2}'::text[])": true,
	"is_more('{1,2}'::bigint[], '{github}'::text[])":                                                 true,
	"runs_of('{00000000-0000-0000-0000-000000000001,00000000-0000-0000-0000-000000000002}'::uuid[])": int32(2),
	"says_more('github')": false, "says_more('github=tenant')": false,
	"says_more('" + (&store.LimitUse{Limit: "github", Weight: 2}).String() + "')":                                          true,
	"says_more('" + (&store.LimitUse{Limit: "github", Until: store.UntilFinished}).String() + "')":                         true,
	fmt.Sprintf("limit_of(%d)", admit.Unkeyed(store.MaxLimitID)):                                                           int32(store.MaxLimitID),
	fmt.Sprintf("line_of_limit(%d)", store.MaxLimitID):                                                                     admit.LimitLine(store.MaxLimitID),
	fmt.Sprintf("line_of_gate(%d)", admit.Unkeyed(7)):                                                                      admit.LimitLine(7),
	"outcome_state('{\"00000000-0000-0000-0000-000000000001\":[4]}'::jsonb, '00000000-0000-0000-0000-000000000001'::uuid)": "4",
}

// TestEveryWordOfSQLMeansItsConstant loads the words as a person would, and compares what each
// returns with the constant, and with what the store sends in its place.
func TestEveryWordOfSQLMeansItsConstant(t *testing.T) {
	t.Parallel()
	db := openStore(t, "")
	conn := withWords(t, db)
	words := parsedWords(t)
	for _, state := range []store.State{store.Pending, store.Running, store.Succeeded, store.Dead, store.Cancelled} {
		ended := state != store.Pending && state != store.Running
		means(t, conn, db, fmt.Sprintf("is_ended(%d::smallint)", state), ended)
		means(t, conn, db, fmt.Sprintf("is_unfinished(%d::smallint)", state), !ended)
		means(t, conn, db, fmt.Sprintf("is_problem(%d::smallint)", state), state == store.Dead || state == store.Cancelled)
	}
	for _, state := range []store.LimitState{store.LimitActive, store.LimitDraining, store.LimitOff, store.LimitRemoved} {
		off := state == store.LimitOff || state == store.LimitRemoved
		means(t, conn, db, fmt.Sprintf("limit_is_off(%d::smallint)", state), off)
		means(t, conn, db, fmt.Sprintf("limit_applies(%d::smallint)", state), !off)
	}
	for call, want := range meanings {
		means(t, conn, db, call, want)
	}
	for field, name := range []string{"state", "delay", "refund", "kind", "error", "stack", "result", "log", "took"} {
		word := words["durable.outcome_"+name]
		require.Equal(t, fmt.Sprintf("(outcomes -> (id::text) ->> %d)", field), word.Body, name)
	}
	for name, word := range words {
		tested := strings.Contains(word.Body, "SELECT") || // a part of a statement, tested with it
			strings.HasPrefix(name, "durable.outcome_") || strings.HasPrefix(name, "durable.is_") || strings.HasPrefix(name, "durable.limit_")
		for call := range meanings {
			tested = tested || "durable."+call[:strings.Index(call, "(")] == name
		}
		require.True(t, tested, "%s (%s): a word that no line of this test compares with its constant", name, word.Body)
	}
}

// means requires that a word returns a value, called and spelled out.
func means(t *testing.T, conn *pgx.Conn, db opened, call string, want any) {
	t.Helper()
	for _, statement := range []string{
		strings.ReplaceAll("select durable."+call, "durable.", db.schema+"."),
		asSent(t, "select durable."+call, db.schema+"."),
	} {
		var got any
		require.NoError(t, conn.QueryRow(t.Context(), statement).Scan(&got), statement)
		require.Equal(t, fmt.Sprint(want), fmt.Sprint(got), statement)
	}
}

// TestEveryStatementCanBeTriedByHand prepares each generated statement as it is written, with
// the functions of db/words.sql, and as it is sent.
func TestEveryStatementCanBeTriedByHand(t *testing.T) {
	t.Parallel()
	db, wordless := openStore(t, ""), openStore(t, "")
	with, without := withWords(t, db), connect(t, wordless.url)
	statements := generated(t)
	require.Greater(t, len(statements), 250)
	for name, statement := range statements {
		written := strings.ReplaceAll(statement, "durable.", db.schema+".")
		_, err := with.Prepare(t.Context(), "", written)
		require.NoError(t, err, name)
		_, err = without.Prepare(t.Context(), "", asSent(t, statement, wordless.schema+"."))
		require.NoError(t, err, name)
	}
}

func parsedWords(t *testing.T) sqlwords.Words {
	t.Helper()
	words, err := sqlwords.Parse(db.Words)
	require.NoError(t, err)
	return words
}

// withWords is a connection to a database in whose schema the words have been created.
func withWords(t *testing.T, in opened) *pgx.Conn {
	t.Helper()
	conn := connect(t, in.url)
	_, err := conn.Exec(t.Context(), strings.ReplaceAll(db.Words, "durable.", in.schema+"."))
	require.NoError(t, err)
	return conn
}

// generated are the statements of internal/queries by their names.
func generated(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("internal/queries/*.sql.go")
	require.NoError(t, err)
	statements := map[string]string{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for node := range ast.Preorder(file) {
			spec, is := node.(*ast.ValueSpec)
			if !is || len(spec.Values) != 1 {
				continue
			}
			text, is := spec.Values[0].(*ast.BasicLit)
			if !is || text.Kind != token.STRING {
				continue
			}
			statements[spec.Names[0].Name], err = strconv.Unquote(text.Value)
			require.NoError(t, err)
		}
	}
	return statements
}
