package durablecmd_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/operate"
)

// calling registers a job that calls another one, and one that dies.
func calling(ctx context.Context, app *durablecmd.App) error {
	part := durable.Returning[int](durable.NewJob[map[string]any]("part"))
	durable.RegisterReturning(app.Worker, part, func(context.Context, *durable.Run[map[string]any]) (int, error) { return 7, nil })
	durable.Register(app.Worker, durable.NewJob[map[string]any]("whole"), func(ctx context.Context, run *durable.Run[map[string]any]) error {
		_, err := part.Call(ctx, run, "first", map[string]any{})
		return err
	})
	durable.Register(app.Worker, durable.NewJob[map[string]any]("broken"), func(context.Context, *durable.Run[map[string]any]) error {
		return durable.Permanent(textError("broken"))
	})
	return stock(ctx, app)
}

func TestDependentsAreEnqueuedShownAndFound(t *testing.T) {
	t.Parallel()
	env := file(t)
	do := func(code int, args ...string) ended {
		t.Helper()
		e := execute(t, env, args...)
		require.Equal(t, code, e.code, "%v: %s", args, e.stderr)
		return e
	}
	id := func(args ...string) string {
		return strings.TrimSpace(do(0, append([]string{"enqueue"}, args...)...).stdout)
	}
	s := serve(t, env, calling)
	s.logs("worker started")

	source := id("sleep", "--in", "1h")
	dependent := id("sleep", "--depends-on", source)
	alarm := id("sleep", "--depends-on", "failure:"+source+","+dependent, "--depends-on", "end:"+source[:24])
	shown := do(0, "runs", "show", alarm).stdout
	require.Regexp(t, `depends on +`+source+` \(sleep, pending\), on end: not met`, shown)
	require.Regexp(t, `depends on +`+source+` \(sleep, pending\), on failure of any: not met`, shown)
	require.Regexp(t, `depends on +`+dependent+` \(sleep, pending\), on failure of any: not met`, shown)
	require.Regexp(t, `dependent +`+dependent+` \(sleep, pending\), on success: not met`, do(0, "runs", "show", source).stdout)
	run := decode[operate.LinkedRun](t, do(0, "runs", "show", dependent, "--json").stdout)
	require.Equal(t, source, run.DependsOn[0].Run.String())
	require.Equal(t, operate.OnSuccess, *run.DependsOn[0].On)
	require.Len(t, run.Dependents, 1)
	waiting := decode[operate.RunList](t, do(0, "runs", "list", "--waiting-on", source, "--json").stdout)
	require.Len(t, waiting.Runs, 2)

	dead := id("broken")
	do(3, "runs", "wait", dead)
	held := id("sleep", "--depends-on", dead)
	doctor := execute(t, env, "doctor")
	require.Contains(t, doctor.stdout, "run "+dead+" of job broken has been dead for ")
	require.Contains(t, doctor.stdout, "and 1 run waits for its success")
	require.Contains(t, do(0, "runs", "cancel", "--all", "--waiting-on", dead, "--yes").stdout+do(0, "runs", "show", held).stdout, "cancelled")
	require.Contains(t, do(0, "runs", "show", dependent).stdout, "pending", "what waits for another run is not changed")

	whole := id("whole")
	do(0, "runs", "wait", whole, "--timeout", "1m")
	require.Regexp(t, `child +[0-9a-f-]{36} \(part, succeeded\), in the step first`, do(0, "runs", "show", whole).stdout)
	children := decode[operate.RunList](t, do(0, "runs", "list", "--parent", whole, "--json").stdout)
	require.Equal(t, "part", children.Runs[0].Job)
	require.Regexp(t, `child of +`+whole+` \(whole, succeeded\), in its step first`, do(0, "runs", "show", children.Runs[0].ID.String()).stdout)
}

func TestDependenciesThatMakeNoSenseAreRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	env := file(t)
	require.Equal(t, 0, execute(t, env, "migrate", "up").code)
	refused := func(want string, args ...string) {
		t.Helper()
		e := execute(t, env, args...)
		require.NotEqual(t, 0, e.code, args)
		require.Contains(t, e.stderr, want, args)
	}
	unknown, own := durable.NewRunID().String(), durable.NewRunID().String()
	enqueue := func(more ...string) []string { return append([]string{"enqueue", "sleep", "--force"}, more...) }
	refused("depends on run "+unknown+", which does not exist: store it before, or in the same call", enqueue("--depends-on", unknown)...)
	refused("no run has an id that begins with 01234567", enqueue("--depends-on", "01234567")...)
	refused(`"done" is not a condition: want success, end or failure`, enqueue("--depends-on", "done:"+unknown)...)
	refused(`"" is not a run id`, enqueue("--depends-on", "end:")...)
	refused("run "+own+" depends on itself", enqueue("--id", own, "--depends-on", own)...)
	refused("can't be used together", enqueue("--in", "1h", "--depends-on", unknown)...)
	refused("--parent: \"7\" is not a run id", "runs", "list", "--parent", "7")
	refused("no run has the id", "runs", "delete", "--all", "--waiting-on", "00000000-0000-0000-0000-000000000000", "--yes")
	refused("want only one of", "runs", "list", "--parent", own, "--waiting-on", own)
}
