package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// plainly are the arguments of one call of the SQL function enqueue, beside the job.
type plainly map[string]any

// enqueueIn calls the function.
func enqueueIn(ctx context.Context, in interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, schema, job string, given plainly) (id uuid.UUID, err error) {
	kinds := map[string]string{"args": "json", "metadata": "json", "queue": "text", "priority": "int", "due_at": "timestamptz", "after": "interval", "expires_at": "timestamptz",
		"timeout": "interval", "max_attempts": "int", "on_crash": "text", "tags": "text[]", "trace": "text", "key": "text", "held_for": "interval", "id": "uuid",
		"undeclared": "boolean", "wake": "boolean"}
	call, values := "select "+schema+".enqueue($1", []any{job}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		values = append(values, given[name])
		call += fmt.Sprintf(", %s => $%d::%s", name, len(values), kinds[name])
	}
	err = in.QueryRow(ctx, call+")", values...).Scan(&id)
	return id, err
}

// declaredAs makes the store know a job.
func declaredAs(t *testing.T, o opened, jobs ...store.JobInfo) {
	t.Helper()
	require.NoError(t, o.Declare(t.Context(), store.Declaration{Worker: store.WorkerID{Name: "w"}, Jobs: jobs}))
}

var mailJob = store.JobInfo{Name: "mail", Queue: "slow", Priority: 2, MaxAttempts: 7, Timeout: store.Duration(time.Minute), OnCrash: store.CrashDead}

// same is one input, for a Client and for the SQL function. A refusal is the same
// sentence, unless it is only alike in its beginning.
type same struct {
	name  string
	sql   plainly
	run   func(*store.NewRun)
	alike string
}

func sames() []same {
	at := time.Date(2040, 1, 2, 3, 4, 5, 6000, time.UTC)
	args := func(text string) same {
		return same{name: "args " + store.NewRunID().String(), sql: plainly{"args": text}, run: func(r *store.NewRun) { r.Args = []byte(text) }}
	}
	named := func(s same, alike string) same { s.alike = alike; return s }
	all := []same{
		{name: "as declared", sql: plainly{}, run: func(*store.NewRun) {}},
		{name: "everything", sql: plainly{"args": `{ "n" : 1, "s": "\ud83d\ude00 \\u0000" }`, "queue": "q/1", "priority": -4, "due_at": at, "expires_at": at, "timeout": "90 seconds",
			"max_attempts": 10000, "on_crash": "retry", "tags": []string{"a", "ü"}, "metadata": `{"tenant":"acme"}`, "trace": "00-x", "key": "k1", "held_for": "1 hour", "wake": false},
			run: func(r *store.NewRun) {
				r.Args, r.Queue, r.Priority, r.At, r.ExpiresAt = []byte(`{ "n" : 1, "s": "\ud83d\ude00 \\u0000" }`), "q/1", -4, at, at
				r.Timeout, r.MaxAttempts, r.OnCrash, r.Tags, r.Metadata, r.Trace = 90*time.Second, 10000, store.CrashRetry, []string{"a", "ü"}, store.Metadata{"tenant": "acme"}, "00-x"
				r.Key = store.Key{Text: "k1", HeldFor: time.Hour}
			}},
		{name: "after", sql: plainly{"after": "2 days"}, run: func(r *store.NewRun) { r.After = 48 * time.Hour }},
		{name: "empty lists", sql: plainly{"tags": []string{}, "metadata": "{}", "trace": ""}, run: func(*store.NewRun) {}},
		{name: "queue", sql: plainly{"queue": "no queue"}, run: func(r *store.NewRun) { r.Queue = "no queue" }},
		{name: "long queue", sql: plainly{"queue": strings.Repeat("q", 129)}, run: func(r *store.NewRun) { r.Queue = strings.Repeat("q", 129) }},
		{name: "queue with a line end", sql: plainly{"queue": "q\n"}, run: func(r *store.NewRun) { r.Queue = "q\n" }, alike: "queue name"},
		{name: "queue of letters beyond ASCII", sql: plainly{"queue": "ä"}, run: func(r *store.NewRun) { r.Queue = "ä" }},
		{name: "priority", sql: plainly{"priority": 5}, run: func(r *store.NewRun) { r.Priority = 5 }},
		{name: "attempts", sql: plainly{"max_attempts": 0}, run: func(r *store.NewRun) { r.MaxAttempts = 0 }},
		{name: "too many attempts", sql: plainly{"max_attempts": 10001}, run: func(r *store.NewRun) { r.MaxAttempts = 10001 }},
		{name: "timeout", sql: plainly{"timeout": "999 microseconds"}, run: func(r *store.NewRun) { r.Timeout = 999 * time.Microsecond }, alike: "timeout"},
		{name: "negative timeout", sql: plainly{"timeout": "-1 second"}, run: func(r *store.NewRun) { r.Timeout = -time.Second }, alike: "timeout"},
		{name: "crash policy", sql: plainly{"on_crash": "often"}, run: func(r *store.NewRun) { r.OnCrash = 9 }, alike: "crash policy"},
		{name: "negative after", sql: plainly{"after": "-1 second"}, run: func(r *store.NewRun) { r.After = -time.Second }, alike: "after"},
		{name: "long after", sql: plainly{"after": "36501 days"}, run: func(r *store.NewRun) { r.After = 36501 * 24 * time.Hour }, alike: "after"},
		{name: "at and after", sql: plainly{"after": "1 second", "due_at": at}, run: func(r *store.NewRun) { r.At, r.After = at, time.Second }},
		{name: "early", sql: plainly{"due_at": "1969-12-31 23:59:59+00"}, run: func(r *store.NewRun) { r.At = time.Unix(-1, 0) }, alike: "at "},
		{name: "endless", sql: plainly{"expires_at": "infinity"}, run: func(r *store.NewRun) { r.ExpiresAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, alike: "expires at"},
		{name: "tags", sql: plainly{"tags": slices.Repeat([]string{"t"}, 33)}, run: func(r *store.NewRun) { r.Tags = slices.Repeat([]string{"t"}, 33) }},
		{name: "empty tag", sql: plainly{"tags": []string{""}}, run: func(r *store.NewRun) { r.Tags = []string{""} }},
		{name: "tag with a control character", sql: plainly{"tags": []string{"a\u009b31m"}}, run: func(r *store.NewRun) { r.Tags = []string{"a\u009b31m"} }, alike: "tag "},
		{name: "metadata name", sql: plainly{"metadata": `{"a=b":"c"}`}, run: func(r *store.NewRun) { r.Metadata = store.Metadata{"a=b": "c"} }},
		{name: "much metadata", sql: plainly{"metadata": `{"a":"` + strings.Repeat("x", 4096) + `"}`}, run: func(r *store.NewRun) { r.Metadata = store.Metadata{"a": strings.Repeat("x", 4096)} }},
		{name: "trace", sql: plainly{"trace": "ä"}, run: func(r *store.NewRun) { r.Trace = "ä" }},
		{name: "long trace", sql: plainly{"trace": strings.Repeat("t", 513)}, run: func(r *store.NewRun) { r.Trace = strings.Repeat("t", 513) }},
		{name: "empty key", sql: plainly{"key": "", "held_for": "1 hour"}, run: func(r *store.NewRun) { r.Key = store.Key{HeldFor: time.Hour} }},
		{name: "long key", sql: plainly{"key": strings.Repeat("k", 256)}, run: func(r *store.NewRun) { r.Key.Text = strings.Repeat("k", 256) }},
		{name: "key with a control character", sql: plainly{"key": "a\tb"}, run: func(r *store.NewRun) { r.Key.Text = "a\tb" }, alike: "key "},
		{name: "key held for long", sql: plainly{"key": "k2", "held_for": "36501 days"}, run: func(r *store.NewRun) { r.Key = store.Key{Text: "k2", HeldFor: 36501 * 24 * time.Hour} }, alike: "key "},
		{name: "id", sql: plainly{"id": "123e4567-e89b-42d3-a456-426614174000"}, run: func(r *store.NewRun) { r.ID = uuid.MustParse("123e4567-e89b-42d3-a456-426614174000") }},

		args(`null`), args(`"` + strings.Repeat("x", store.MaxArgsSize-2) + `"`), args(`"` + strings.Repeat("x", store.MaxArgsSize-1) + `"`),
		args(strings.Repeat("[", 128) + strings.Repeat("]", 128)), args(strings.Repeat("[", 129) + strings.Repeat("]", 129)),
		args(strings.Repeat(`{"a":`, 129) + "1" + strings.Repeat("}", 129)),
		args(`"` + strings.Repeat(`[\"`, 500) + `"`), args("[" + strings.Repeat("[],", 500) + "1]"), args(`12345678901234567890123e400`),
		args(`{"a":"\\\\ud800"}`), named(args(`{"a":"\u0000"}`), "args"), named(args(`{"a":"\\\u0000"}`), "args"),
		named(args(`{"a":"\ud800"}`), "args"), named(args(`["\udc00x"]`), "args"), named(args(`["\ud800\u0041"]`), "args"), args(`["\uFFFD"]`), named(args(`["\ufffd"]`), "args"), named(args(`["\uFFFD\ud83d\ude00"]`), "args"),
	}
	return all
}

// What a Client stores the SQL function stores too, and what it refuses the function
// refuses, in the same words.
func TestSQLEnqueue_DoesWhatAClientDoes(t *testing.T) {
	t.Parallel()
	byGo, bySQL := openStore(t, ""), openStore(t, "")
	declaredAs(t, byGo, mailJob)
	declaredAs(t, bySQL, mailJob)
	goConn, conn := connect(t, byGo.url), connect(t, bySQL.url)
	stored := func(conn *pgx.Conn, schema string, id uuid.UUID) (row map[string]any) {
		var text string
		require.NoError(t, conn.QueryRow(t.Context(), strings.ReplaceAll(`select (pg_catalog.to_jsonb(runs) - 'args')::text from (
			select runs.*, lanes.queue, lanes.job, lanes.priority, lanes.paused, ready.due_at = runs.due_at as lined, runs.args::text as written,
				case when runs.due_at < '2039-01-01' then extract(epoch from runs.due_at - runs.created_at)::int end as delay,
				extract(epoch from unique_keys.held_to - runs.created_at)::int as held, unique_keys.latest = runs.id as latest
			from S.runs join S.lanes on lanes.id = runs.lane left join S.ready on ready.run_id = runs.id and ready.lane = lanes.id
			left join S.unique_keys on unique_keys.run_id = runs.id where runs.id = $1) runs`, "S.", schema+"."), id).Scan(&text), id)
		require.NoError(t, json.Unmarshal([]byte(text), &row))
		for _, own := range []string{"id", "created_at", "lane"} {
			delete(row, own)
		}
		if row["delay"] != nil {
			delete(row, "due_at")
		}
		return row
	}
	for _, c := range sames() {
		run := durable.RunOf(mailJob, []byte("{}"))
		c.run(&run)
		_, wanted := byGo.Enqueue(t.Context(), run)
		id, err := enqueueIn(t.Context(), conn, bySQL.schema, "mail", c.sql)
		if wanted == nil {
			require.NoError(t, err, c.name)
			require.Equal(t, stored(goConn, byGo.schema, run.ID), stored(conn, bySQL.schema, id), c.name)
			continue
		}
		require.ErrorIs(t, wanted, store.ErrInvalid, c.name)
		var refusal *pgconn.PgError
		require.ErrorAs(t, err, &refusal, "%s: %v", c.name, wanted)
		if c.alike == "" {
			require.Equal(t, wanted.Error(), "enqueue: "+refusal.Message, c.name)
		} else {
			require.Contains(t, wanted.Error(), "invalid: "+c.alike, c.name)
			require.True(t, strings.HasPrefix(refusal.Message, "durable: invalid: "+c.alike), "%s: %s", c.name, refusal.Message)
		}
	}
}

// What Go alone can compute, or has no form in SQL, is refused by name.
func TestSQLEnqueue_RefusesWhatItCannotCompute(t *testing.T) {
	t.Parallel()
	o := openStore(t, "")
	limit := store.Limit{Name: "tenant", Kind: store.LimitSemaphore, Max: 1}
	limited := mailJob
	limited.Name, limited.Limits = "limited", []store.JobLimit{{Default: store.LimitUse{Limit: "tenant"}}}
	require.NoError(t, o.Declare(t.Context(), store.Declaration{Worker: store.WorkerID{Name: "w"}, Limits: []store.Limit{limit}, Jobs: []store.JobInfo{mailJob, limited}}))
	conn := connect(t, o.url)
	for _, c := range []struct {
		job   string
		given plainly
		say   string
	}{
		{"limited", plainly{}, `the job "limited" has limits`},
		{"letter", plainly{}, `unknown job "letter"`},
		{"no job", plainly{"undeclared": true}, `job name "no job": want 1 to 128`},
		{"mail", plainly{"args": `{"a":`}, "invalid input syntax for type json"},
		{"mail", plainly{"args": nil}, "args: not valid JSON"},
		{"mail", plainly{"metadata": `{"n":1}`}, "metadata n: want text"},
		{"mail", plainly{"metadata": `[]`}, "metadata: want an object of texts"},
		{"mail", plainly{"tags": []*string{nil}}, `tag "": want 1 to 128 bytes`},
	} {
		_, err := enqueueIn(t.Context(), conn, o.schema, c.job, c.given)
		require.ErrorContains(t, err, c.say)
	}
	_, err := enqueueIn(t.Context(), conn, o.schema, "letter", plainly{"undeclared": true})
	require.NoError(t, err)
	var runs int
	require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from "+o.schema+".runs").Scan(&runs))
	require.Equal(t, 1, runs, "a refusal has stored something")
}

// A key is held against Go, and by it; an id that is stored is stored once.
func TestSQLEnqueue_SharesKeysAndIDs(t *testing.T) {
	t.Parallel()
	o := openStore(t, "")
	declaredAs(t, o, mailJob)
	conn := connect(t, o.url)
	enqueue := func(given plainly) uuid.UUID {
		id, err := enqueueIn(t.Context(), conn, o.schema, "mail", given)
		require.NoError(t, err)
		return id
	}
	byGo := func(options ...durable.Option) store.Receipt {
		receipts, err := o.Enqueue(t.Context(), durable.RunOf(mailJob, []byte("{}"), options...))
		require.NoError(t, err)
		return receipts[0]
	}
	first := enqueue(plainly{"key": "a", "held_for": "1 hour"})
	require.Equal(t, first, enqueue(plainly{"key": "a"}))
	require.Equal(t, store.Receipt{ID: first, Existing: true}, byGo(durable.Unique("a")))
	held := byGo(durable.UniqueFor("b", time.Hour)).ID
	require.Equal(t, held, enqueue(plainly{"key": "b"}))
	ended := func(id uuid.UUID) {
		_, err := conn.Exec(t.Context(), "update "+o.schema+".runs set state = 5 where id = $1", id)
		require.NoError(t, err)
	}
	ended(held)
	require.Equal(t, held, enqueue(plainly{"key": "b"}), "its time is not over")
	brief := enqueue(plainly{"key": "c"})
	ended(brief)
	again := enqueue(plainly{"key": "c"})
	require.NotEqual(t, brief, again)
	require.Equal(t, store.Receipt{ID: again, Existing: true}, byGo(durable.Unique("c")))

	id := store.NewRunID()
	require.Equal(t, id, enqueue(plainly{"id": id}))
	require.Equal(t, id, enqueue(plainly{"id": id, "queue": "another"}))
	made := enqueue(nil)
	require.EqualValues(t, 7, made.Version())
	require.WithinDuration(t, time.Now(), time.Unix(made.Time().UnixTime()), time.Minute)
}

// A transaction of the caller's, whatever its search_path and its settings: what it
// enqueues is there with its commit, wakes a worker, and is executed.
func TestSQLEnqueue_GoesWithTheTransaction(t *testing.T) {
	t.Parallel()
	url := planted(t, pgtest.Server(t))
	o := openURL(t, url+"&standard_conforming_strings=off", "t_sql")
	executed := make(chan string, 10)
	w := durable.NewWorker(o, durable.WorkerConfig{PollInterval: time.Hour})
	durable.Register(w, durable.NewJob[string]("note"), func(_ context.Context, run *durable.Run[string]) error {
		executed <- run.Args
		return nil
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() { stop(); require.NoError(t, <-done) }()
	require.Eventually(t, func() bool { jobs, err := o.Jobs(t.Context()); return err == nil && len(jobs) == 1 }, time.Minute, 10*time.Millisecond)

	for _, setting := range []string{"search_path = public, pg_catalog", "search_path = ''", "default_transaction_isolation = 'repeatable read'", "timezone = 'Asia/Kolkata'", "standard_conforming_strings = off"} {
		conn := connect(t, url) // a new one: a session keeps functions as it first read them
		_, err := conn.Exec(t.Context(), "set "+setting, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = enqueueIn(t.Context(), tx, o.schema, "note", plainly{"args": `"rolled back"`})
		require.NoError(t, err)
		require.NoError(t, tx.Rollback(t.Context()))
		tx, err = conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = enqueueIn(t.Context(), tx, o.schema, "note", plainly{"args": `"` + strings.ReplaceAll(setting, `"`, ``) + `"`, "metadata": `{"a":"b"}`, "tags": []string{"t"}, "key": setting})
		require.NoError(t, err, setting)
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, setting, <-executed)
	}
}

// The roles that enqueue may call the function and a reader may not; doctor says so.
func TestSQLEnqueue_ByRoles(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	migrated := openFresh(t, server)
	declaredAs(t, migrated, mailJob)
	for role, may := range map[postgres.Role]bool{postgres.RoleWorker: true, postgres.RoleProducer: true, postgres.RoleReader: false} {
		name := newRole(t, server)
		o := openAs(t, migrated, role, name)
		_, err := enqueueIn(t.Context(), connect(t, o.url), o.schema, "mail", plainly{"queue": "new-" + string(role), "key": string(role)})
		if may {
			require.NoError(t, err, role)
		} else {
			forbidden(t, err, string(role))
		}
		requireSaid(t, o, role, false)
		_, err = connect(t, migrated.url).Exec(t.Context(), "revoke execute on all functions in schema "+migrated.schema+" from "+name)
		require.NoError(t, err)
		requireSaid(t, o, role, may)
	}
}

// requireSaid looks for what doctor says of the functions.
func requireSaid(t *testing.T, o opened, role postgres.Role, said bool) {
	t.Helper()
	findings, err := o.Examine(t.Context())
	require.NoError(t, err)
	require.Equal(t, said, slices.ContainsFunc(findings, func(one store.Finding) bool { return one.Name == "functions" }), role)
}

// edges are inputs at the bounds of what may be stored, and just beyond them, and each
// character that a terminal may obey, in each text that has a rule.
func edges() (all []same) {
	add := func(name string, sql plainly, run func(*store.NewRun)) {
		all = append(all, same{name: name, sql: sql, run: run})
	}
	text := func(name, text string) {
		if text != "" { // for a Client that is no key; in SQL null is, and a key that was forgotten is refused
			add("key of "+name, plainly{"key": text}, func(r *store.NewRun) { r.Key.Text = text })
		}
		add("tag of "+name, plainly{"tags": []string{text}}, func(r *store.NewRun) { r.Tags = []string{text} })
		add("trace of "+name, plainly{"trace": text}, func(r *store.NewRun) { r.Trace = text })
		add("queue of "+name, plainly{"queue": text}, func(r *store.NewRun) { r.Queue = text })
		for what, m := range map[string]store.Metadata{"name": {text: "v"}, "value": {"n": text}} {
			written, _ := json.Marshal(m)
			add("metadata "+what+" of "+name, plainly{"metadata": string(written)}, func(r *store.NewRun) { r.Metadata = m })
		}
	}
	for c := rune(1); c <= 0xa1; c++ {
		text(fmt.Sprintf("%U", c), "a"+string(c)+"b")
	}
	for _, c := range []rune{0xad, 0x200b, 0x202e, 0x2028, 0xfeff, 0xfffd, 0x1f600, 0x10ffff} {
		text(fmt.Sprintf("%U", c), string(c))
	}
	for _, n := range []int{0, 1, 127, 128, 129, 255, 256, 512, 513, 4095, 4096, 4097} {
		text(fmt.Sprintf("%d bytes", n), strings.Repeat("x", n))
		text(fmt.Sprintf("%d letters of two bytes", n/2), strings.Repeat("ü", n/2))
	}
	for given, d := range map[string]time.Duration{"0": 0, "1 microsecond": time.Microsecond, "999 microseconds": 999 * time.Microsecond, "1 millisecond": time.Millisecond,
		"36500 days": store.MaxDelay, "36500 days 1 microsecond": store.MaxDelay + time.Microsecond, "-1 microsecond": -time.Microsecond} {
		add("timeout "+given, plainly{"timeout": given}, func(r *store.NewRun) { r.Timeout = d })
		add("after "+given, plainly{"after": given}, func(r *store.NewRun) { r.After = d })
		add("held for "+given, plainly{"key": "held " + given, "held_for": given}, func(r *store.NewRun) { r.Key = store.Key{Text: "held " + given, HeldFor: d} })
	}
	for _, at := range []time.Time{time.Unix(0, 0), time.Unix(-1, 0), time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		add("due "+at.String(), plainly{"due_at": at}, func(r *store.NewRun) { r.At = at })
		add("expires "+at.String(), plainly{"expires_at": at}, func(r *store.NewRun) { r.ExpiresAt = at })
	}
	for _, n := range []int{-1 << 31, -5, -4, 4, 5, 1<<31 - 1} {
		add(fmt.Sprintf("priority %d", n), plainly{"priority": n}, func(r *store.NewRun) { r.Priority = n })
		add(fmt.Sprintf("attempts %d", n), plainly{"max_attempts": n}, func(r *store.NewRun) { r.MaxAttempts = n })
	}
	for _, args := range []string{`{"a":1,"a":2}`, ` 1 `, "1e400", "-0", `""`, `"\/"`, `"\u00e9"`, "\"\u2028\"", `"\ud83d\ude00"`, `"\ude00\ud83d"`, `{"":{"":[]}}`, "[1,]", "01", "+1", ".5", "NaN", "nul", "'a'", `"\x41"`, "\"\t\"", ""} {
		add("args "+args, plainly{"args": args}, func(r *store.NewRun) { r.Args = []byte(args) })
	}
	return all
}

// What a Client refuses the SQL function refuses, and nothing else.
func TestSQLEnqueue_RefusesWhatAClientRefuses(t *testing.T) {
	t.Parallel()
	o := openStore(t, "")
	declaredAs(t, o, mailJob)
	conn := connect(t, o.url)
	refused := 0
	for _, c := range edges() {
		run := durable.RunOf(mailJob, []byte("{}"))
		c.run(&run)
		wanted := store.CheckRuns([]store.NewRun{run})
		_, err := enqueueIn(t.Context(), conn, o.schema, "mail", c.sql)
		if (wanted == nil) != (err == nil) {
			t.Errorf("%s: a Client answers %v, and the function %v", c.name, wanted, err)
		}
		if wanted != nil {
			refused++
		}
	}
	require.Greater(t, refused, 300)
}
