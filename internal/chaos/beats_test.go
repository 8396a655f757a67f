package chaos_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// Runs that arrive one by one are claimed one by one, and a worker that holds
// many such claims keeps them alive by one row. One that is killed and one that
// is stopped lose all of them to others, after the lease and once.
func TestManyClaimsOfOne(t *testing.T) {
	t.Parallel()
	for name, out := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			db, gate := openStore(t, dsn), filepath.Join(t.TempDir(), "gate")
			const runs, lasts = 80, 6 * time.Second
			env := []string{"DURABLE_MAX_CONCURRENT_RUNS=200", "DURABLE_LEASE_DURATION=" + lasts.String()}
			first := startWorker(t, dsn, name, env...)
			var ids []durable.RunID
			for n := range runs {
				ids = append(ids, enqueueHeld(t, db, 1, gate)...)
				until(t, db, time.Minute, "the run has begun", func(c map[durable.State]store.Count) bool {
					return c[durable.Running].N == int64(n+1)
				})
			}
			conn, err := pgx.Connect(t.Context(), dsn)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close(context.Background()) })
			require.Eventually(t, func() bool {
				var together int
				err := conn.QueryRow(t.Context(), "select count(*) from durable.leases l join durable.beats b on b.id = l.beat").Scan(&together)
				return err == nil && together == runs
			}, time.Minute, 10*time.Millisecond, "the leases follow one beat")

			held, at := runningOn(t, db, name), first.signal(out)
			require.Len(t, held, runs)
			rescuer := startWorker(t, dsn, "rescuer", env...)
			until(t, db, time.Minute, "the others have them", func(map[durable.State]store.Count) bool {
				return len(runningOn(t, db, "rescuer")) == runs
			})
			if out == syscall.SIGSTOP {
				first.signal(syscall.SIGCONT) // its late results are refused
			}
			release(t, gate)
			until(t, db, 60*time.Second, "every run succeeds", succeeded(runs))
			for _, id := range ids {
				r := record(t, db, id)
				require.Equal(t, "rescuer", *r.Worker)
				require.Equal(t, 1, r.Attempt)
				crashes(t, 1, r, rescuer)
				require.Less(t, r.StartedAt.Sub(at), 2*lasts, "with the start of the rescuer")
			}
		})
	}
}
