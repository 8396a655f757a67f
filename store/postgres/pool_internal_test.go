package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
)

// A second connection of the engine's is closed, however often the first is used.
func TestPool_ACalmWorkerKeepsOneConnection(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), pgtest.Server(t)+"&pool_max_conn_idle_time=400ms&pool_health_check_period=100ms", Config{Schema: "unused"})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	one, err := s.engine.Acquire(t.Context())
	require.NoError(t, err)
	other, err := s.engine.Acquire(t.Context())
	require.NoError(t, err)
	one.Release()
	other.Release()
	require.Eventually(t, func() bool {
		_, err := s.engine.Exec(t.Context(), "select")
		require.NoError(t, err)
		return s.engine.Stat().TotalConns() == 1
	}, 10*time.Second, 50*time.Millisecond)
}
