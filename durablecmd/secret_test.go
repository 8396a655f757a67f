package durablecmd_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
)

// TestSecretsAreShownNowhere gives the program every secret that it takes, and reads all
// that it writes: with a database, with one that refuses, and with wrong values.
func TestSecretsAreShownNowhere(t *testing.T) {
	t.Parallel()
	const canary = "canary-0123456789"
	database, err := url.Parse(pgtest.Database(t))
	require.NoError(t, err)
	database.User = url.UserPassword(database.User.Username(), canary)
	secrets := []string{"DURABLE_HTTP_ADDR=127.0.0.1:0", "DURABLE_LOG_LEVEL=debug", "DURABLE_DASHBOARD_ADDR=127.0.0.1:0",
		"DURABLE_DASHBOARD_TOKEN=" + canary, "DURABLE_DASHBOARD_VIEWER_TOKEN=viewer-" + canary,
		"DURABLE_EVENTS_WEBHOOK_URL=http://127.0.0.1:1/" + canary, "DURABLE_EVENTS_WEBHOOK_SECRET=" + canary, "DURABLE_EVENTS=all"}
	env := append([]string{"DURABLE_DATABASE_URL=" + database.String()}, secrets...)
	silent := func(what, text string) {
		t.Helper()
		require.NotContains(t, text, canary, what)
		require.NotContains(t, text, url.QueryEscape(canary), what)
	}
	s := serve(t, env, stock)
	s.logs("worker started")
	id := strings.TrimSpace(execute(t, env, "enqueue", "sleep", "--args", `{"for":"long"}`, "--max-attempts", "1", "--force").stdout)
	eventually(t, env, "dead", "runs", "show", id)
	_, ready := status(t, s.address(), "/readyz")
	require.Equal(t, true, ready["ready"])
	silent("/metrics", scrape(t, s.address()))
	s.signal()
	require.Equal(t, 0, s.ends())
	silent("the log of a worker", s.stderr.String())

	away := append([]string{"DURABLE_DATABASE_URL=postgres://app:" + canary + "@127.0.0.1:1/db", "DURABLE_REDIS_URL=redis://app:" + canary + "@127.0.0.1:1/0"}, secrets...)
	wrong := append([]string{"DURABLE_DATABASE_URL=postgres://app:" + canary + "@127.0.0.1:x/db?sslmode=" + canary, "DURABLE_REDIS_URL=redis://" + canary + "@:x"}, secrets...)
	for _, with := range [][]string{env, away, wrong} {
		for _, args := range [][]string{{"config"}, {"config", "--json"}, {"doctor"}, {"doctor", "--json"}, {"runs", "list"}, {"migrate", "status"}, {"locks", "list"}, {"--help"}} {
			e := execute(t, with, args...)
			silent(strings.Join(args, " "), e.stdout+e.stderr)
		}
	}
}
