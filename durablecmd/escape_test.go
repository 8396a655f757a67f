package durablecmd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
)

// hostile is what a terminal may obey: CSI as one character, a direction mark,
// DEL, and a format character beyond the first plane.
const hostile = "a\u009b31mb\u202ec\u007fd\U000e0041e"

func TestNothingThatATerminalObeysIsPrinted(t *testing.T) {
	t.Parallel()
	env := file(t)
	args := `{"message":"` + hostile + `"}`
	s := serve(t, append(env, "DURABLE_LOG_FORMAT=json"), func(ctx context.Context, app *durablecmd.App) error {
		durable.Register(app.Worker, durable.NewJob[map[string]string]("fail"), func(_ context.Context, run *durable.Run[map[string]string]) error {
			run.Log().Info("asked", "for", 1500*time.Millisecond)
			return durable.Permanent(textError(run.Args["message"] + "\n"))
		})
		return stock(ctx, app)
	})
	s.logs("worker started")
	fail := strings.TrimSpace(execute(t, env, "enqueue", "fail", "--args", args).stdout)
	execute(t, env, "enqueue", "log", "--args", args)
	s.logs(`"for":"1.5s"`)
	s.logs(`"error":"a\u009b31mb\u202ec\u007fd\udb40\udc41e"`)
	s.logs(`"message":"a\u009b31mb\u202ec\u007fd\udb40\udc41e"`)
	eventually(t, env, "dead", "runs", "show", fail)
	for _, e := range []ended{
		execute(t, env, "runs", "show", fail, "--json"), execute(t, env, "runs", "show", fail), execute(t, env, "runs", "list", "--json"),
		execute(t, env, "runs", "show", hostile, "--json"), execute(t, env, "enqueue", "log", "--tag", hostile, "--args", "{}"),
	} {
		require.NotContains(t, e.stdout+e.stderr, "\u009b")
		require.NotContains(t, e.stdout+e.stderr, "\u202e")
		require.NotContains(t, e.stdout+e.stderr, "\u007f")
		require.NotContains(t, e.stdout+e.stderr, "\U000e0041")
	}
	shown := decode[struct{ Args map[string]string }](t, execute(t, env, "runs", "show", fail, "--json").stdout)
	require.Equal(t, hostile, shown.Args["message"], "the JSON means the same")
	require.Equal(t, 2, execute(t, env, "enqueue", "log", "--tag", "t\u009b31mX", "--args", "{}").code)
	s.signal()
	require.Equal(t, 0, s.ends())
	require.NotContains(t, s.stderr.String(), "\u009b")
}

type textError string

func (e textError) Error() string { return string(e) }

func TestBytesThatAreNoTextAreReplaced(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\ufffdb", durablecmd.Printable("a\x9bb"))
	require.Equal(t, `{"a":"\ufffd\u009b"}`, string(durablecmd.EscapedJSON([]byte("{\"a\":\"\x9b\u009b\"}"))))
}
