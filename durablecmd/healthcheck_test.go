package durablecmd_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHealthcheckAsksTheWorker(t *testing.T) {
	t.Parallel()
	s := serve(t, file(t), stock)
	_, port, err := net.SplitHostPort(s.address())
	require.NoError(t, err)
	s.logs("worker started")
	becomes(t, "127.0.0.1:"+port, "/readyz", http.StatusOK)
	for _, host := range []string{"127.0.0.1", "0.0.0.0", "localhost", ""} {
		for _, line := range []string{"healthcheck --timeout 1m", "healthcheck --ready --timeout 1m", "healthcheck --ready --json --timeout 1m"} {
			e := execute(t, []string{"DURABLE_HTTP_ADDR=" + host + ":" + port}, strings.Fields(line)...)
			require.Equal(t, 0, e.code, e.stderr)
			require.NotEmpty(t, e.stdout)
		}
	}
	s.signal()
	require.Equal(t, 0, s.ends())
	e := execute(t, []string{"DURABLE_HTTP_ADDR=127.0.0.1:" + port}, "healthcheck", "--json")
	require.Equal(t, 1, e.code)
	require.Equal(t, "unreachable", decode[failure](t, e.stderr).Error.Code)
}

func TestHealthcheckFailsUnlessTheAnswerIsGood(t *testing.T) {
	t.Parallel()
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			<-r.Context().Done()
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte("{\"ready\":false,\"reason\":\"draining\"}"))
	}))
	t.Cleanup(bad.Close)
	env := []string{"DURABLE_HTTP_ADDR=" + strings.TrimPrefix(bad.URL, "http://")}
	e := execute(t, env, "healthcheck", "--ready", "--timeout", "1m")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "draining")
	e = execute(t, env, "healthcheck", "--timeout", "50ms")
	require.Equal(t, 1, e.code)
	require.Equal(t, 2, execute(t, env, "healthcheck", "--timeout", "0s").code)
	e = execute(t, []string{"DURABLE_HTTP_ADDR=off"}, "healthcheck")
	require.Equal(t, 2, e.code)
	require.Contains(t, e.stderr, "DURABLE_HTTP_ADDR")
}
