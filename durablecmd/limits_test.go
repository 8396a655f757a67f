package durablecmd_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

type exportArgs struct {
	Tenant string `json:"tenant"`
}

// exporting is a program with jobs under limits. Runs of the job export execute until
// release is closed.
func exporting(begun chan<- string, release <-chan struct{}) func(context.Context, *durablecmd.App) error {
	tenant := durable.NewLimit("Tenant", durable.Semaphore(2))
	api := durable.NewLimit("api", durable.TokenBucket(100, time.Second, 10))
	return func(_ context.Context, app *durablecmd.App) error {
		export := durable.NewJob[exportArgs]("export", durable.Limited(tenant, durable.KeyOf("{tenant}")), durable.MaxConcurrent(5))
		durable.Register(app.Worker, export, func(ctx context.Context, run *durable.Run[exportArgs]) error {
			begun <- run.Args.Tenant
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		coded := durable.NewJob[exportArgs]("coded", durable.Limited(tenant, durable.KeyFrom(func(a exportArgs) string { return a.Tenant })), durable.Limited(api))
		durable.Register(app.Worker, coded, func(context.Context, *durable.Run[exportArgs]) error { return nil })
		return nil
	}
}

type limitList struct {
	Limits []struct {
		Name, Kind, State string
		Max               int
		Period            string
		WhenFull          string `json:"when_full"`
		Edited            bool
		InUse             struct{ N int } `json:"in_use"`
		Waiting           struct{ N int }
	}
	Next *string
}

type limitKey struct {
	Key     string
	InUse   int `json:"in_use"`
	Permits []struct {
		Owner, Worker string
		Places        int
		Runs          []string
	}
	Waiters   []struct{ Run, Job string }
	NotBefore *time.Time `json:"not_before"`
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{
		"sqlite":   file(t),
		"postgres": {"DURABLE_DATABASE_URL=" + pgtest.Database(t), "DURABLE_HTTP_ADDR=off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, release := make(chan string, 10), make(chan struct{})
			s := serve(t, append(env, "DURABLE_WORKER_NAME=web-7"), exporting(begun, release))
			s.logs("worker started")
			do := func(code int, args ...string) string {
				t.Helper()
				e := execute(t, env, args...)
				require.Equal(t, code, e.code, "%v: %s%s", args, e.stdout, e.stderr)
				require.NotContains(t, e.stdout+e.stderr, "%!")
				return e.stdout + e.stderr
			}
			eventually(t, env, "tenant", "limits", "list")
			require.Regexp(t, `(?m)^api +token-bucket +100 in 1s, 10 together +active +0 +0 +-$`, do(0, "limits", "list"))
			require.Regexp(t, `(?m)^job:export +semaphore +5 +active`, do(0, "limits", "list", "--caps"))
			require.NotContains(t, do(0, "limits", "list"), "job:export")
			require.Regexp(t, `export .* Tenant=\{tenant\}, job:export\n`, do(0, "jobs", "list"))
			require.Regexp(t, `coded .* Tenant=\(computed\), api\n`, do(0, "jobs", "list"))

			var ids []string
			for range 4 {
				ids = append(ids, strings.TrimSpace(do(0, "enqueue", "export", "--args", `{"tenant":"Acme"}`)))
			}
			require.Equal(t, []string{"Acme", "Acme"}, []string{<-begun, <-begun})
			require.Regexp(t, `limits +Tenant=Acme, job:export\n`, do(0, "runs", "show", ids[0]))
			require.Contains(t, do(0, "runs", "show", ids[0], "--json"), `"limits":`)
			require.Regexp(t, `(?m)^tenant +semaphore +2 +active +2 +2 +-$`, do(0, "limits", "list", "TENANT"))
			shown := do(0, "limits", "show", "Tenant", "--key", "ACME")
			require.Regexp(t, `in use +2\nwaiting +2\n`, shown)
			require.Regexp(t, `web-7 +`+ids[0], shown)
			require.Regexp(t, `1 +`+ids[2]+` +export +default +0 +.*\n2 +`+ids[3], shown)
			require.Regexp(t, `(?m)^Acme +2 +[^ ]+ ago +2 +-$`, do(0, "limits", "keys", "TENANT"))
			require.Regexp(t, `(?s)"key": "Acme".*"n": 2`, do(0, "limits", "keys", "tenant", "--json"))
			require.Contains(t, do(1, "limits", "keys", "nowhere"), `limit "nowhere"`)
			key := decode[limitKey](t, do(0, "limits", "show", "tenant", "--key", "acme", "--json"))
			require.Equal(t, 2, key.InUse)
			require.Equal(t, ids[2], key.Waiters[0].Run)

			changeLimits(t, env, do)
			require.Equal(t, "Acme", <-begun, "a place more")
			eventually(t, env, "in use   3", "limits", "show", "tenant", "--key", "acme")

			require.Contains(t, do(1, "limits", "delete", "tenant"), "conflict: limit \"tenant\" is in use: 1 runs wait for it and 3 places are held; turn it off, and delete it when those runs have ended")
			key = decode[limitKey](t, do(0, "limits", "show", "tenant", "--key", "acme", "--json"))
			require.Equal(t, "tenant: released\n", do(0, "limits", "release", "tenant=acme", key.Permits[0].Owner))
			require.Equal(t, "Acme", <-begun, "a place that was taken away is free")
			close(release)
			for _, id := range ids {
				eventually(t, env, "succeeded", "runs", "show", id)
			}
			require.Equal(t, "tenant: deleted\n", do(0, "limits", "delete", "tenant"))
			require.NotContains(t, do(0, "limits", "list"), "tenant")
			require.Contains(t, do(0, "audit", "list"), "limit")
			s.signal()
			require.Equal(t, 0, s.ends())
		})
	}
}

// changeLimits runs each verb that changes a limit. At its end tenant has three places.
func changeLimits(t *testing.T, env []string, do func(code int, args ...string) string) {
	t.Helper()
	state := func(name string) string {
		t.Helper()
		return decode[limitList](t, do(0, "limits", "list", name, "--json")).Limits[0].State
	}
	require.Equal(t, "tenant: admits nothing more\n", do(0, "limits", "drain", "tenant"))
	require.Equal(t, "draining", state("tenant"))
	require.JSONEq(t, `{"name":"tenant","command":"resume"}`, do(0, "limits", "resume", "tenant", "--json"))
	require.Equal(t, "active", state("tenant"))
	require.Equal(t, "API: admits everything\n", do(0, "limits", "off", "API"))
	require.Equal(t, "off", state("api"))
	require.Equal(t, "api: applies\n", do(0, "limits", "resume", "api"))
	require.Equal(t, "api: set to 50 in 1s, 10 together, then retry\n", do(0, "limits", "set", "api", "--when-full", "retry", "--retry-after", "1m", "--max", "50"))
	require.Regexp(t, `(?m)^api +token-bucket +50 in 1s, 10 together, then retry +active, edited`, do(0, "limits", "list"))
	do(0, "limits", "set", "api", "--when-full", "wait")
	require.Regexp(t, `(?m)^api +token-bucket +50 in 1s, 10 together +active, edited`, do(0, "limits", "list"))

	require.Contains(t, do(2, "limits", "set", "mine", "--max", "3"), `there is no limit "mine": add --kind to create it`)
	require.Equal(t, "mine: set to 20 in 1h0m0s, 2 to 20 a key\n", do(0, "limits", "set", "mine", "--kind", "dynamic-window", "--max", "20", "--period", "1h", "--buckets", "60", "--least", "2", "--most", "20"))
	require.Regexp(t, `(?m)^mine +dynamic-window +20 in 1h0m0s, 2 to 20 a key +active, edited`, do(0, "limits", "list"))
	require.Equal(t, "mine: deleted\n", do(0, "limits", "delete", "mine"))
	require.Contains(t, do(1, "limits", "drain", "mine"), "not found")

	require.Contains(t, do(1, "limits", "set", "tenant", "--kind", "fixed-window", "--period", "1h"), `conflict: limit "tenant" is a semaphore, and a limit keeps its kind`)
	db, err := backend.Open(t.Context(), strings.TrimPrefix(env[0], "DURABLE_DATABASE_URL="), backend.Config{})
	require.NoError(t, err)
	defer db.Close()
	_, err = db.UseLimit(t.Context(), store.LimitRequest{Usage: store.UsagePenalize, Limit: "tenant", Key: "bolt", For: time.Hour})
	require.NoError(t, err)
	require.Regexp(t, `penalized +until 20`, do(0, "limits", "show", "tenant", "--key", "bolt"))
	require.NotNil(t, decode[limitKey](t, do(0, "limits", "show", "tenant", "--key", "bolt", "--json")).NotBefore)
	require.Equal(t, "tenant: not penalized\n", do(0, "limits", "lift", "tenant=BOLT"))
	require.NotContains(t, do(0, "limits", "show", "tenant", "--key", "bolt"), "penalized")
	require.Equal(t, "tenant: set to 3\n", do(0, "limits", "set", "tenant", "--max", "3"))
}

// TestWrongLimits: what cannot be is refused by its name, and what people type is shown
// without control characters.
func TestWrongLimits(t *testing.T) {
	t.Parallel()
	env := file(t)
	s := serve(t, env, exporting(make(chan string, 10), make(chan struct{})))
	s.logs("worker started")
	eventually(t, env, "tenant", "limits", "list")
	for _, c := range []struct {
		code  int
		error string // its code, and a part of the message
		text  string
		args  []string
	}{
		{2, "usage", "", []string{"limits"}},
		{2, "usage", "", []string{"limits", "show"}},
		{2, "usage", "", []string{"limits", "burn", "tenant"}},
		{2, "usage", `"mutex" is not a kind of limit`, []string{"limits", "set", "x", "--kind", "mutex"}},
		{2, "usage", `"explode" is not a limit's action`, []string{"limits", "set", "tenant", "--when-full", "explode"}},
		{2, "usage", "", []string{"limits", "set", "tenant", "--max", "many"}},
		{2, "usage", `owner "x": want a UUID`, []string{"limits", "release", "tenant=acme", "x"}},
		{2, "invalid", "max -1", []string{"limits", "set", "tenant", "--max", "-1"}},
		{2, "invalid", "a semaphore has no period", []string{"limits", "set", "tenant", "--period", "1h"}},
		{2, "invalid", "want a time to retry after", []string{"limits", "set", "tenant", "--when-full", "retry"}},
		{2, "invalid", "want at most 100 bytes", []string{"limits", "drain", strings.Repeat("x", 101)}},
		{1, "not_found", "nowhere", []string{"limits", "show", "nowhere"}},
		{1, "not_found", "nowhere", []string{"limits", "drain", "nowhere"}},
		{1, "not_found", "nowhere", []string{"limits", "lift", "nowhere=x"}},
		{1, "not_found", "nowhere", []string{"limits", "release", "nowhere=x", "6f0a9a3e-38a4-4b0b-9d0e-1c1f5a3f7a11"}},
		{2, "invalid", `\x1b[31mred`, []string{"limits", "show", "\x1b[31mred"}},
		{2, "invalid", `tenant`, []string{"enqueue", "export"}},
		{2, "invalid", `limit "Tenant": the job's Go code computes its key, and this program does not have that code: pass the key as Tenant=KEY`, []string{"enqueue", "coded", "--args", `{"tenant":"a"}`}},
		{1, "unknown_limit", `"githup": no worker has declared it`, []string{"enqueue", "export", "--args", `{"tenant":"a"}`, "--limited-by", "githup=1"}},
		{2, "invalid", "weight 9: want at most 2", []string{"enqueue", "export", "--limited-by", "tenant*9=a"}},
		{2, "invalid", "a token-bucket has no permits", []string{"enqueue", "coded", "--limited-by", "tenant=a", "--limited-by", "api!finished"}},
		{2, "usage", `weight "x": want a whole number`, []string{"enqueue", "coded", "--limited-by", "tenant*x=a"}},
		{2, "usage", `"soon" is not a term of a limit`, []string{"enqueue", "coded", "--limited-by", "tenant!soon=a"}},
		{2, "invalid", "limit name", []string{"enqueue", "coded", "--limited-by", "tenant=a", "--limited-by", "=a"}},
		{2, "invalid", "control characters", []string{"enqueue", "coded", "--limited-by", "tenant=\x1b[2J"}},
		{2, "invalid", "255 bytes", []string{"enqueue", "coded", "--limited-by", "tenant=" + strings.Repeat("k", 256)}},
	} {
		e := execute(t, env, append(c.args, "--json")...)
		require.Equal(t, c.code, e.code, "%q: %s", c.args, e.stderr)
		require.Empty(t, e.stdout, "%q", c.args)
		failed := decode[failure](t, e.stderr).Error
		require.Equal(t, c.error, failed.Code, "%q: %s", c.args, failed.Message)
		e = execute(t, env, c.args...)
		require.Equal(t, c.code, e.code, "%q", c.args)
		require.Contains(t, e.stderr, c.text, "%q", c.args)
		require.NotContains(t, e.stderr, "\x1b", "%q", c.args)
	}
	shown := execute(t, env, "limits", "show", "tenant", "--key", "\x1b[2J")
	require.NotContains(t, shown.stdout+shown.stderr, "\x1b")
	e := execute(t, env, "enqueue", "coded", "--args", `{"tenant":"a"}`, "--limited-by", "tenant=b", "--wait")
	require.Equal(t, 0, e.code, e.stderr)
	id := regexp.MustCompile(`[0-9a-f-]{36}`).FindString(e.stdout)
	require.Regexp(t, `limits +[tT]enant=b, api\n`, execute(t, env, "runs", "show", id).stdout)
}

// A program whose limits contradict each other does not start, and says which.
func TestContradictoryLimitsAreRefusedAtStart(t *testing.T) {
	t.Parallel()
	setup := func(_ context.Context, app *durablecmd.App) error {
		handle := func(context.Context, *durable.Run[exportArgs]) error { return nil }
		one, other := durable.NewLimit("tenant", durable.Semaphore(2)), durable.NewLimit("Tenant", durable.Semaphore(3))
		durable.Register(app.Worker, durable.NewJob[exportArgs]("a", durable.Limited(one)), handle)
		durable.Register(app.Worker, durable.NewJob[exportArgs]("b", durable.Limited(other)), handle)
		durable.Register(app.Worker, durable.NewJob[exportArgs]("c", durable.Limited(one, durable.KeyOf("{tenant"))), handle)
		durable.Register(app.Worker, durable.NewJob[exportArgs]("d", durable.Limited(durable.NewLimit("none", durable.Semaphore(0)))), handle)
		keyed := durable.NewJob[exportArgs]("e", durable.Limited(one, durable.KeyOf("{tenant}")))
		durable.AddSchedule(app.Worker, "hourly-export", keyed, exportArgs{}, durable.Every(time.Hour))
		return nil
	}
	s := serve(t, file(t), setup)
	require.NotEqual(t, 0, s.ends())
	for _, text := range []string{`limit \"Tenant\" differs from another limit of the same name`, `{tenant`, `hourly-export`, `limit \"none\": max 0`} {
		require.Contains(t, s.stderr.String(), text)
	}
}

func TestLimitsCheckSaysWhatMustNotBe(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	env := []string{"DURABLE_DATABASE_URL=" + url, "DURABLE_HTTP_ADDR=off"}
	do := func(code int, args ...string) string {
		t.Helper()
		e := execute(t, env, args...)
		require.Equal(t, code, e.code, "%v: %s%s", args, e.stdout, e.stderr)
		return e.stdout + e.stderr
	}
	do(0, "migrate", "up")
	do(0, "limits", "set", "mail", "--kind", "semaphore", "--max", "1")
	require.Equal(t, "no faults\n", do(0, "limits", "check"))
	pgtest.Execute(t, url, "insert into durable.permits (gate, owner, k, until, runs) select id::bigint << 43, gen_random_uuid(), 2, 's', '{}' from durable.limits")
	require.Regexp(t, `(?m)^orphaned +mail +- +\S+ +2 places are held by a claim that is over`, do(1, "limits", "check"))
	require.Contains(t, do(1, "limits", "check", "--json"), `"fault": "orphaned"`)
	require.Contains(t, do(1, "doctor"), "mail")
}
