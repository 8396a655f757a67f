package durablecmd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
)

// TestOperatorsHaveConnectionsOfTheirOwn: the worker's pool for enqueues is not the
// dashboard's.
func TestOperatorsHaveConnectionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{"DURABLE_DATABASE_URL=" + pgtest.Database(t), "DURABLE_HTTP_ADDR=127.0.0.1:0", "DURABLE_LOG_LEVEL=debug",
		"DURABLE_DASHBOARD_ADDR=127.0.0.1:0", "DURABLE_DATABASE_MAX_CONNS=2"}, stock)
	s.logs("worker started")
	c, base := client(t), "http://"+s.dashboard()+"/api/v1"
	code, text := call(t, c, "POST", base+"/runs", `{"job":"sleep","args":{"for":"1ms"}}`)
	require.Equal(t, 201, code, text)
	done := make(chan int)
	for range 60 {
		go func() {
			code, _ := call(t, c, "GET", base+"/runs", "")
			done <- code
		}()
	}
	for range 60 {
		require.Equal(t, 200, <-done)
	}
	require.NotContains(t, s.stderr.String(), "no connections of its own")
	s.signal()
	require.Equal(t, 0, s.ends())
}
