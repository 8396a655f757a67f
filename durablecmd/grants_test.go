package durablecmd_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/internal/pgtest"
)

// The program under exactly the roles whose grants it prints.
func TestTheProgramRunsUnderTheRolesThatItPrints(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{}).URL()
	as := func(role string) []string {
		address, err := url.Parse(server)
		require.NoError(t, err)
		if role != "" {
			address.User = url.User(role)
		}
		return []string{"DURABLE_DATABASE_URL=" + address.String(), "DURABLE_HTTP_ADDR=off"}
	}
	do := func(code int, role string, args ...string) string {
		t.Helper()
		e := executeWith(t, durablecmd.Start{Setup: answers, Env: as(role), Args: args})
		require.Equal(t, code, e.code, "%s %v: %s%s", role, args, e.stdout, e.stderr)
		return e.stdout + e.stderr
	}
	do(0, "", "migrate", "up")
	grants := do(0, "", "migrate", "grants", "--role", "app")
	pgtest.Execute(t, server, "create role app_producer login; create role app_worker login; create role app_reader login")
	pgtest.Execute(t, server, grants)

	s := serveWith(t, durablecmd.Start{Env: append(as("app_worker"), "DURABLE_MIGRATE=false"), Setup: answers})
	s.logs("worker started")
	do(0, "app_producer", "enqueue", "answer", "--args", `"good"`, "--wait")
	do(0, "app_worker", "runs", "delete", "--all", "--yes")
	do(0, "app_worker", "queues", "pause", "default")
	require.Contains(t, do(0, "app_reader", "audit", "list"), "bulk")
	do(0, "app_reader", "runs", "count")
	require.Contains(t, do(1, "app_reader", "enqueue", "answer", "--args", `"good"`), "permission denied")
	require.Contains(t, do(1, "app_producer", "queues", "pause", "default"), "permission denied")
	// The test's server is not durable, which fails.
	require.Contains(t, do(1, "app_reader", "doctor"), "the role may only read: to enqueue it lacks")
	require.Contains(t, do(1, "app_worker", "doctor"), "the role may do all that workers and operators do")
	require.Contains(t, do(0, "", "migrate", "grants", "--role", "dash", "--for", "reader"), `TO "dash";`)
	s.signal()
	require.Equal(t, 0, s.ends())
	require.Equal(t, 2, execute(t, file(t), "migrate", "grants", "--role", "app").code, "a file has no roles")
	require.Equal(t, grants, execute(t, nil, "migrate", "grants", "--role", "app").stdout, "no database is needed")
}
