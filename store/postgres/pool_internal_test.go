package postgres

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// A second connection of the engine's is closed, however often the first is used.
func TestPool_ACalmWorkerKeepsOneConnection(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), pgtest.Server(t)+"&pool_max_conn_idle_time=400ms&pool_health_check_period=100ms", Config{Schema: "unused"})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	one, err := s.db.Engine.Acquire(t.Context())
	require.NoError(t, err)
	other, err := s.db.Engine.Acquire(t.Context())
	require.NoError(t, err)
	one.Release()
	other.Release()
	require.Eventually(t, func() bool {
		_, err := s.db.Engine.Exec(t.Context(), "select")
		require.NoError(t, err)
		return s.db.Engine.Stat().TotalConns() == 1
	}, 10*time.Second, 50*time.Millisecond)
}

// A sweep keeps no connection that only it has needed, and closes none that others use.
func TestPool_ASweepClosesWhatItHasOpened(t *testing.T) {
	t.Parallel()
	for name, enqueues := range map[string]bool{"a worker that only works": false, "one that enqueues too": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Open(t.Context(), pgtest.Database(t), Config{})
			require.NoError(t, err)
			t.Cleanup(s.Close)
			_, err = s.schema.Migrate(t.Context())
			require.NoError(t, err)
			s.db.General.Reset()
			connections := func() int32 { return s.db.General.Stat().TotalConns() }
			require.Eventually(t, func() bool { return connections() == 0 }, 10*time.Second, 10*time.Millisecond)
			if enqueues {
				require.NoError(t, s.db.General.Ping(t.Context()))
			}
			opened := s.db.General.Stat().NewConnsCount()
			for range 100 {
				swept, err := s.Sweep(t.Context(), store.SweepRequest{By: uuid.New(), Retention: time.Hour, RetentionDead: time.Hour, Limit: 100})
				require.NoError(t, err)
				if swept.Done && enqueues {
					require.Equal(t, opened, s.db.General.Stat().NewConnsCount(), "the sweep has used another connection")
					require.EqualValues(t, 1, connections())
					return
				}
				if swept.Done {
					require.Greater(t, s.db.General.Stat().NewConnsCount(), opened, "no sweep was due")
					require.Eventually(t, func() bool { return connections() == 0 }, 10*time.Second, 10*time.Millisecond)
					return
				}
			}
			require.Fail(t, "the sweep does not end")
		})
	}
}
