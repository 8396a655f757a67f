package durablecmd_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
)

type listedRuns struct {
	Runs []struct {
		ID, Job  string
		Metadata map[string]string
	}
}

func TestMetadataIsGivenShownAndInherited(t *testing.T) {
	t.Parallel()
	env := migrated(t)
	run := func(args ...string) string {
		e := execute(t, env, args...)
		require.Zero(t, e.code, e.stderr)
		return strings.TrimSpace(e.stdout)
	}
	id := run("enqueue", "log", "--meta", "tenant=acme", "--meta", "note=a, b=c")
	require.Contains(t, run("runs", "show", id), "metadata  note=a, b=c, tenant=acme\n")
	again := run("runs", "rerun", id)
	require.Contains(t, run("runs", "show", again), "metadata  note=a, b=c, tenant=acme\n")
	run("enqueue", "log", "--meta", "tenant=zeta")

	listed := decode[listedRuns](t, run("runs", "list", "--meta", "tenant=acme", "--json"))
	require.Len(t, listed.Runs, 2)
	require.Equal(t, "acme", listed.Runs[0].Metadata["tenant"])
	require.Contains(t, run("runs", "count", "--meta", "tenant=acme", "--meta", "note=a, b=c"), "pending    2\n")
	require.Contains(t, run("runs", "delete", "--all", "--yes", "--meta", "tenant=acme"), "pending runs match too")
	run("runs", "delete", "--all", "--yes", "--state", "pending", "--meta", "tenant=acme")
	require.Len(t, decode[listedRuns](t, run("runs", "list", "--json")).Runs, 1)

	run("schedules", "create", "nightly", "log", "--cron", "0 3 * * *", "--meta", "region=eu", "--meta", "tier=2")
	require.Contains(t, run("schedules", "list", "--json"), `"region": "eu"`)
	run("schedules", "set", "nightly", "--every", "1h")
	made := strings.Fields(run("schedules", "run-now", "nightly"))
	require.Contains(t, run("runs", "show", made[len(made)-1]), "metadata  region=eu, tier=2\n", "of the schedule, which another change leaves as it is")
	run("schedules", "set", "nightly", "--meta", "region=us")
	require.NotContains(t, run("schedules", "list", "--json"), "tier")
	run("schedules", "set", "nightly", "--meta", "none")
	require.NotContains(t, run("schedules", "list", "--json"), "region")

	for _, wrong := range [][]string{{"enqueue", "log", "--meta", "tenant"}, {"enqueue", "log", "--meta", "=x"}, {"runs", "list", "--meta", ""}, {"runs", "list", "--meta", "none"}} {
		e := execute(t, env, wrong...)
		require.Equal(t, 2, e.code, "%v: %s", wrong, e.stderr)
	}
}

func TestRunsAreFoundByWhatIsKnownOfThem(t *testing.T) {
	t.Parallel()
	env := file(t, "DURABLE_WORKER_NAME=w7")
	job := durable.NewJob[string]("fetch", durable.MaxAttempts(1))
	s := serve(t, env, func(_ context.Context, app *durablecmd.App) error {
		durable.Register(app.Worker, job, func(_ context.Context, run *durable.Run[string]) error {
			if run.Args == "bad" {
				return durable.Permanent(context.DeadlineExceeded)
			}
			return nil
		})
		return nil
	})
	s.logs("worker started")
	ids := map[string]string{}
	for _, args := range []string{"good", "bad"} {
		e := execute(t, env, "enqueue", "fetch", "--args", `"`+args+`"`, "--unique", "k-"+args)
		require.Zero(t, e.code, e.stderr)
		ids[args] = strings.TrimSpace(e.stdout)
		execute(t, env, "runs", "wait", ids[args])
	}
	for _, one := range []struct {
		flags []string
		want  []string
	}{
		{[]string{"--key", "k-bad"}, []string{"bad"}},
		{[]string{"--error", "deadline exceeded"}, []string{"bad"}},
		{[]string{"--error", "deadline", "--key", "k-good"}, nil},
		{[]string{"--worker", "w7"}, []string{"bad", "good"}},
		{[]string{"--worker", "w8"}, nil},
		{[]string{"--ended-since", "1h"}, []string{"bad", "good"}},
		{[]string{"--ended-since", "2100-01-01T00:00:00Z"}, nil},
		{[]string{"--schedule", "nightly"}, nil},
	} {
		e := execute(t, env, append([]string{"runs", "list", "--json"}, one.flags...)...)
		require.Zero(t, e.code, e.stderr)
		var got, want []string
		for _, r := range decode[listedRuns](t, e.stdout).Runs {
			got = append(got, r.ID)
		}
		for _, name := range one.want {
			want = append(want, ids[name])
		}
		require.Equal(t, want, got, "%v", one.flags)
	}
	dry := execute(t, env, "runs", "retry", "--all", "--dry-run", "--error", "deadline")
	require.Contains(t, dry.stdout, "1 run matched", dry.stderr)
	require.Equal(t, 2, execute(t, env, "runs", "retry", "--error", "deadline").code, "a filter alone changes nothing")
	s.signal()
	require.Zero(t, s.ends(), s.stderr)
}

func TestArgsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	type letter struct {
		Invoice int64 `json:"invoice"`
	}
	env := migrated(t)
	setup := func(_ context.Context, app *durablecmd.App) error {
		durable.Register(app.Worker, durable.NewJob[letter]("letter", durable.Alias("mail")), func(context.Context, *durable.Run[letter]) error { return nil })
		return stock(t.Context(), app)
	}
	enqueue := func(args ...string) ended {
		return executeWith(t, durablecmd.Start{Setup: setup, Env: env, Args: append([]string{"enqueue"}, args...)})
	}
	for _, job := range []string{"letter", "mail"} {
		e := enqueue(job, "--args", `{"invoice":"x"}`)
		require.Equal(t, 2, e.code)
		require.Contains(t, e.stderr, "--args: decode args: json: cannot unmarshal string into Go struct field letter.invoice of type int64; --force")
	}
	require.Contains(t, enqueue("sleep", "--args", `{"duration":"1s"}`).stderr, `--args: decode args: json: unknown field "duration"; --force`, "it would sleep for no time")
	require.Zero(t, enqueue("letter", "--force", "--args", `{"invoice":"x"}`).code)
	require.Contains(t, enqueue("letter", "--args", `{"invoice":7}`).stderr, "unknown job", "they fit, and no one declares the job")
	require.Zero(t, enqueue("sleep", "--args", `{"for":"1s"}`).code, "a job that has a check of its own")

	failing := executeWith(t, durablecmd.Start{Env: env, Args: []string{"enqueue", "sleep", "--args", `{"for":"1s"}`},
		Setup: func(context.Context, *durablecmd.App) error { return context.DeadlineExceeded }})
	require.Zero(t, failing.code, "a Setup that cannot be called here checks nothing: %s", failing.stderr)
}
