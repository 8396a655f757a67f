package durablecmd_test

import (
	"encoding/json"
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

// A process that serves pages and the API repeats calls too, and its log has no line for it
// that a program which reads the log cannot read.
func TestAServedCallIsRepeatedWithoutANotice(t *testing.T) {
	t.Parallel()
	env := []string{"DURABLE_DATABASE_URL=" + pgtest.Server(t), "DURABLE_SCHEMA=repeats_served", "DURABLE_MIGRATE=true", "DURABLE_LOG_FORMAT=json", "DURABLE_DASHBOARD_ADDR=127.0.0.1:0"}
	s := serveWith(t, durablecmd.Start{Env: env, Setup: stock, Connect: pgtest.Cut("CountSome", 3)})
	s.logs("worker started")
	code, text := call(t, client(t), "GET", "http://"+s.dashboard()+"/api/v1/counts", "")
	require.Equal(t, 200, code, text)
	s.signal()
	require.Equal(t, 0, s.ends())
	for line := range strings.Lines(s.stderr.String()) {
		require.True(t, json.Valid([]byte(line)), line)
	}
}
