package durablecmd_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
)

func faulty(_ context.Context, app *durablecmd.App) error {
	durablecmd.RegisterJobs(app)
	durablecmd.RegisterJobs(app)
	return nil
}

type failure struct {
	Error struct{ Code, Message string }
}

func TestWrongUsageExitsWith2(t *testing.T) {
	t.Parallel()
	env := file(t)
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	for _, line := range []string{
		"fly", "work now", "runs", "runs show", "runs show 7", "runs list --limit 0", "runs list --limit 201", "runs list --state done",
		"runs list --cursor x", "enqueue", "enqueue sleep --in 1m --at 2030-01-01T00:00:00Z", "enqueue sleep --in soon",
		"enqueue sleep --args {", "enqueue sleep --priority 5", "enqueue sleep --max-attempts 0", "enqueue sleep --in -5m",
		"enqueue sleep --timeout -1s", "enqueue sleep --id 7", "enqueue sleep --id 6f0a9a3e-38a4-4b0b-9d0e-1c1f5a3f7a11",
		"enqueue sleep --queue a,b", "enqueue --force a\x00b", "migrate", "migrate down", "demo --for 1s", "demo --for 20s", "--nope",
	} {
		e := execute(t, env, strings.Fields(line)...)
		require.Equal(t, 2, e.code, "%s: %s", line, e.stderr)
		require.Empty(t, e.stdout, line)
		require.NotEmpty(t, e.stderr, line)
	}
	for _, flag := range []string{"--json", "--json=true"} {
		e := execute(t, env, "runs", "show", "7", flag)
		require.Equal(t, "usage", decode[failure](t, e.stderr).Error.Code)
	}
	e := execute(t, env, "runs", "list", "--state", "done")
	require.Equal(t, "durable-worker: --state: \"done\" is not a state (pending, running, succeeded, dead, cancelled)\n"+
		"Run \"durable-worker runs list --help\" for usage.\n", e.stderr)
}

func TestAValueThatIsMissingOrWrongIsSaidInPlainWords(t *testing.T) {
	t.Parallel()
	const empty = "must not be empty: omit the flag, or give it a value"
	for line, want := range map[string]string{
		"runs wait 7 --timeout":            "--timeout: " + empty,
		"runs wait 7 --timeout=":           "--timeout: " + empty,
		"runs wait 7 --timeout 2d":         `--timeout: "2d": want a duration, such as 90s, 10m or 48h`,
		"locks forced --limit":             "--limit: " + empty,
		"locks forced --limit x":           `--limit: "x": want a whole number of at most 64 bits, such as 10`,
		"queues set mail --max-concurrent": "--max-concurrent: " + empty,
		"enqueue sleep --at":               "--at: " + empty,
		"enqueue sleep --at 2030-01-31":    `--at: "2030-01-31": want a time with its zone, such as 2030-01-31T08:00:00Z`,
	} {
		e := execute(t, nil, strings.Fields(line)...)
		require.Equal(t, 2, e.code, line)
		require.True(t, strings.HasPrefix(e.stderr, "durable-worker: "+want+"\n"), "%s: %s", line, e.stderr)
	}
}

func TestHelpAndVersionExitWith0(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"--help", "enqueue --help", "runs show --help", "--version", "version", "version --json"} {
		e := execute(t, []string{"DURABLE_POLL_INTERVAL=x"}, strings.Fields(line)...)
		require.Equal(t, 0, e.code, line)
		require.NotEmpty(t, e.stdout, line)
		require.Empty(t, e.stderr, line)
	}
	for _, verb := range []string{"work", "demo", "migrate up", "enqueue", "runs list", "runs show", "config"} {
		require.Contains(t, execute(t, nil, "--help").stdout, "\n  "+verb+" ")
	}
}

func TestADatabaseThatIsNotMigratedIsNamed(t *testing.T) {
	t.Parallel()
	env := file(t)
	for _, line := range []string{"runs list", "runs show 0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e", "migrate check", "migrate status"} {
		e := execute(t, env, append(strings.Fields(line), "--json")...)
		require.Equal(t, 1, e.code, line)
		f := decode[failure](t, e.stderr).Error
		require.Equal(t, "not_migrated", f.Code)
		require.Contains(t, f.Message, "durable-worker migrate up")
		path, _ := strings.CutPrefix(env[0], "DURABLE_DATABASE_URL=")
		require.Equal(t, path+": there is no database file "+strings.TrimPrefix(path, "sqlite:")+
			": `durable-worker migrate up` creates it, and so does a worker when it starts; or set DURABLE_DATABASE_URL", f.Message)
	}
}

// Only a worker and migrate up migrate, and what is refused leaves nothing behind.
func TestAVerbThatIsRefusedChangesNothing(t *testing.T) {
	t.Parallel()
	env := file(t)
	path, _ := strings.CutPrefix(env[0], "DURABLE_DATABASE_URL=sqlite:")
	for _, line := range []string{
		"enqueue sleep --force", "schedules create nightly sleep --every 1h", "runs list", "runs delete --all --yes", "queues pause a",
		"audit list", "locks list", "migrate status", "doctor",
	} {
		for _, migrate := range []string{"DURABLE_MIGRATE=true", "DURABLE_MIGRATE=false"} {
			e := execute(t, append(env, migrate), strings.Fields(line)...)
			require.Equal(t, 1, e.code, "%s: %s", line, e.stderr)
			require.Contains(t, e.stdout+e.stderr, "durable-worker migrate up", line)
		}
		left, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Empty(t, left, line)
	}
	require.NoError(t, os.WriteFile(path, nil, 0o600)) // a file that is there, and empty
	e := execute(t, env, "enqueue", "sleep", "--force")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "the database has no schema of durable yet; run `durable-worker migrate up`")
}

func TestMigrateUpFailsWhereTheSchemaIsTooNew(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	path, _ := strings.CutPrefix(env[0], "DURABLE_DATABASE_URL=sqlite:")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE meta SET version = 99, min_compatible = 98")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	check := execute(t, env, "migrate", "check")
	require.Equal(t, 1, check.code)
	up := execute(t, env, "migrate", "up")
	require.Equal(t, 1, up.code)
	require.Equal(t, check.stderr, up.stderr)
	require.Contains(t, up.stderr, "schema version 99 requires program version 98 or later")
	require.Equal(t, "not_migrated", decode[failure](t, execute(t, env, "migrate", "up", "--json").stderr).Error.Code)
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	env := file(t)
	type version struct{ Version, Wanted, Applied int }
	up := execute(t, env, "migrate", "up", "--json")
	require.Equal(t, 0, up.code, up.stderr)
	first := decode[version](t, up.stdout)
	require.Positive(t, first.Version)
	require.Equal(t, first.Version, first.Applied, "a new file gets each step once, and they are numbered from 1")
	require.Zero(t, decode[version](t, execute(t, env, "migrate", "up", "--json").stdout).Applied)
	status := decode[version](t, execute(t, env, "migrate", "status", "--json").stdout)
	require.Equal(t, first.Version, status.Version)
	require.Equal(t, first.Version, status.Wanted)
	require.Equal(t, 0, execute(t, env, "migrate", "check").code)
	for _, dsn := range []string{"sqlite:nowhere/x.db", "postgres://nobody@127.0.0.1:1/none"} {
		e := execute(t, []string{"DURABLE_DATABASE_URL=" + dsn, "DURABLE_SCHEMA=mine"}, "migrate", "sql")
		require.Equal(t, 0, e.code, e.stderr)
		require.Contains(t, strings.ToLower(e.stdout), "create table")
	}
}

func TestMemoryIsForWorkersOnly(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"runs list", "enqueue sleep", "migrate up"} {
		e := execute(t, []string{"DURABLE_DATABASE_URL=memory:"}, strings.Fields(line)...)
		require.Equal(t, 2, e.code)
		require.Contains(t, e.stderr, "DURABLE_DATABASE_URL")
	}
}

func TestEnqueuePrintsTheIDOnly(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	e := execute(t, env[:2], "enqueue", "sleep", "--args", `{"for":"1s"}`)
	require.Equal(t, 0, e.code, e.stderr)
	require.Equal(t, "durable-worker: no living worker serves job sleep on queue default: the run waits until one does\n", e.stderr)
	id, err := durable.ParseRunID(strings.TrimSuffix(e.stdout, "\n"))
	require.NoError(t, err)

	again := execute(t, env, "enqueue", "sleep", "--id", id.String(), "--json")
	require.Equal(t, 0, again.code, again.stderr)
	require.JSONEq(t, `{"id":"`+id.String()+`","existing":true}`, again.stdout)

	unknown := execute(t, env, "enqueue", "fly", "--json")
	require.Equal(t, 1, unknown.code)
	f := decode[failure](t, unknown.stderr).Error
	require.Equal(t, "unknown_job", f.Code)
	require.Contains(t, f.Message, "known jobs are exec, http, log, sleep")
	require.Equal(t, 0, execute(t, env, "enqueue", "fly", "--force").code)
}

func TestEnqueueTakesEveryFlag(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	start := durablecmd.Start{
		Setup: stock, Env: env, Stdin: strings.NewReader(`{"n": 9007199254740993}`),
		Args: []string{"enqueue", "sleep", "--force", "--args", "-", "--at", "2035-01-02T03:04:05Z", "--queue", "q", "--priority", "-2", "--max-attempts", "9",
			"--timeout", "2m", "--expires-at", "2036-01-01T00:00:00Z", "--tag", "a,b", "--tag", "c"},
	}
	e := executeWith(t, start)
	require.Equal(t, 0, e.code, e.stderr)
	run := execute(t, env, "runs", "show", strings.TrimSpace(e.stdout), "--json")
	require.Equal(t, 0, run.code, run.stderr)
	got := decode[map[string]any](t, run.stdout)
	delete(got, "id")
	delete(got, "created_at")
	require.Contains(t, run.stdout, "9007199254740993")
	for _, other := range []string{"args", "batch", "children", "dependents", "depends_on", "more_dependents", "more_sources", "parent"} {
		require.Contains(t, got, other)
		delete(got, other)
	}
	require.Equal(t, map[string]any{
		"job": "sleep", "queue": "q", "state": "pending", "attempt": 0.0, "max_attempts": 9.0, "crash_count": 0.0, "progress": nil, "checkpoint": nil, "isolated": false,
		"priority": -2.0, "due_at": "2035-01-02T03:04:05Z", "started_at": nil, "finished_at": nil, "expires_at": "2036-01-01T00:00:00Z",
		"timeout": "2m0s", "worker": nil, "fence": 0.0, "schedule": nil, "occurrence": nil, "key": nil, "tags": []any{"a,b", "c"}, "result": nil, "error": nil, "attempts": []any{},
	}, got)
}

func TestRunsAreListedInPages(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	var ids []string
	for range 3 {
		ids = append([]string{strings.TrimSpace(execute(t, env, "enqueue", "log").stdout)}, ids...)
	}
	type page struct {
		Runs []struct{ ID, Job, State string }
		Next *string
	}
	first := decode[page](t, execute(t, env, "runs", "list", "--limit", "2", "--json").stdout)
	require.Len(t, first.Runs, 2)
	require.Equal(t, ids[0], first.Runs[0].ID)
	require.NotNil(t, first.Next)
	text := execute(t, env, "runs", "list", "--limit", "2").stdout
	require.Contains(t, text, "more: --cursor "+*first.Next)
	second := decode[page](t, execute(t, env, "runs", "list", "--cursor", *first.Next, "--json").stdout)
	require.Len(t, second.Runs, 1)
	require.Equal(t, ids[2], second.Runs[0].ID)
	require.Nil(t, second.Next)
	none := execute(t, env, "runs", "list", "--state", "dead,cancelled", "--job", "log", "--queue", "default", "--json")
	require.JSONEq(t, `{"runs":[],"next":null}`, none.stdout)
	require.Equal(t, "no runs\n", execute(t, env, "runs", "list", "--job", "sleep").stdout)

	missing := execute(t, env, "runs", "show", "0190c5a0-7d6c-7b0e-9f6e-3a1f4b2c5d6e", "--json")
	require.Equal(t, 1, missing.code)
	require.Equal(t, "not_found", decode[failure](t, missing.stderr).Error.Code)
}

func TestHostileTextCannotMoveTheCursor(t *testing.T) {
	t.Parallel()
	env := file(t, "DURABLE_WORKER_NAME=w")
	bad := durable.NewJob[map[string]string]("bad", durable.MaxAttempts(1))
	s := serve(t, env, func(_ context.Context, app *durablecmd.App) error {
		durable.Register(app.Worker, bad, func(context.Context, *durable.Run[map[string]string]) error {
			return errors.New("\x1b[2Jgone\r\nnext\u202eline")
		})
		return nil
	})
	s.logs("worker started")
	id := strings.TrimSpace(execute(t, env, "enqueue", "bad", "--args", "{\"a\":\"\u009b2J\"}", "--tag", "\u2066x").stdout)
	eventually(t, env, "dead", "runs", "show", id)
	s.signal()
	require.Equal(t, 0, s.ends())
	for _, text := range []string{execute(t, env, "runs", "show", id).stdout, execute(t, env, "runs", "list").stdout} {
		require.Contains(t, text, `\x1b[2Jgone\r\nnext\u202eline`)
		require.NotContains(t, text, "\x1b")
		require.NotContains(t, text, "\u202e")
		require.NotContains(t, text, "\u009b")
	}
	require.NotContains(t, s.stderr.String(), "\x1b")
}

func TestTheStackOfAPanicIsShown(t *testing.T) {
	t.Parallel()
	env := file(t, "DURABLE_WORKER_NAME=w")
	bad := durable.NewJob[map[string]string]("bad", durable.MaxAttempts(1))
	s := serve(t, env, func(_ context.Context, app *durablecmd.App) error {
		durable.Register(app.Worker, bad, func(context.Context, *durable.Run[map[string]string]) error { panic("oh") })
		return nil
	})
	s.logs("worker started")
	id := strings.TrimSpace(execute(t, env, "enqueue", "bad").stdout)
	eventually(t, env, "dead", "runs", "show", id)
	s.signal()
	require.Equal(t, 0, s.ends())
	text := execute(t, env, "runs", "show", id).stdout
	require.Contains(t, text, "\nstack of execution 1 (attempt 1 of 1):\ngoroutine ")
	require.Contains(t, text, "TestTheStackOfAPanicIsShown")
	require.NotContains(t, text, `\t`, "what is indented by a tab is shown by spaces")
}
