package durablecmd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/internal/pgtest"
)

func TestCommandsRepeatThemselvesAfterALostConnection(t *testing.T) {
	t.Parallel()
	env := []string{"DURABLE_DATABASE_URL=" + pgtest.Server(t), "DURABLE_SCHEMA=repeats"}
	require.Zero(t, execute(t, env, "migrate", "up").code)
	do := func(cuts int32, statement string, args ...string) ended {
		return executeWith(t, durablecmd.Start{Setup: stock, Env: env, Args: args, Connect: pgtest.Cut(statement, cuts)})
	}
	lost := "the connection to the database was lost, trying again in "

	e := do(3, "CountSome", "runs", "count")
	require.Zero(t, e.code, e.stderr)
	require.Contains(t, e.stdout, "pending")
	require.Positive(t, strings.Count(e.stderr, lost), e.stderr)

	e = do(3, "SetQueue", "queues", "pause", "default", "--force")
	require.Zero(t, e.code, e.stderr)
	require.Contains(t, e.stderr, lost+"100ms: ")
	require.Equal(t, 1, strings.Count(execute(t, env, "audit", "list").stdout, "pause"), "it was paused once")

	e = do(1000, "CountSome", "runs", "count")
	require.Equal(t, 1, e.code)
	require.Equal(t, 4, strings.Count(e.stderr, lost), "bounded: %s", e.stderr)
}
