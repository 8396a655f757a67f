package chaos_test

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
)

func sqliteDSN(t *testing.T) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "chaos.db")
}

func TestThreeWorkers_KilledStoppedTerminated_PostgreSQL(t *testing.T) {
	killStopTerminate(t, pgtest.Database(t), true)
}

func TestThreeWorkers_KilledStoppedTerminated_SQLite(t *testing.T) {
	t.Parallel()
	killStopTerminate(t, sqliteDSN(t), false)
}

// killStopTerminate takes three of four workers that share 200 runs out of
// work in three ways. Every run succeeds and no attempt is charged.
func killStopTerminate(t *testing.T, dsn string, timed bool) {
	t.Helper()
	store := openStore(t, dsn)
	killed := startWorker(t, dsn, "killed", "DURABLE_MAX_CONCURRENT_RUNS=20")
	stopped := startWorker(t, dsn, "stopped", "DURABLE_MAX_CONCURRENT_RUNS=20")
	ended := startWorker(t, dsn, "ended", "DURABLE_MAX_CONCURRENT_RUNS=20")
	ids := enqueueNaps(t, store, 200, 3*time.Second)
	until(t, store, 20*time.Second, "all three work", func(map[durable.State]durable.Count) bool {
		return len(runningOn(t, store, "killed")) == 20 && len(runningOn(t, store, "stopped")) == 20 && len(runningOn(t, store, "ended")) == 20
	})

	ofKilled, killedAt := runningOn(t, store, "killed"), killed.signal(syscall.SIGKILL)
	ofStopped := runningOn(t, store, "stopped")
	stopped.signal(syscall.SIGSTOP)
	ofEnded, endedAt := runningOn(t, store, "ended"), ended.signal(syscall.SIGTERM)
	startWorker(t, dsn, "rescuer", "DURABLE_MAX_CONCURRENT_RUNS=400") // room for all of it
	drainedAt := ended.exited()
	require.Less(t, drainedAt.Sub(endedAt), drainTimeout+time.Second, "a drain takes its time and no more")
	<-time.After(time.Until(killedAt.Add(3 * leaseDuration)))
	stopped.signal(syscall.SIGCONT)

	until(t, store, 60*time.Second, "every run succeeds", succeeded(200))
	for _, id := range ids {
		r := record(t, store, id)
		require.Equal(t, 1, r.Attempt, "an interruption charges no attempt: %v", failures(r))
		require.Empty(t, failures(r))
	}
	rerun(t, store, "killed", ofKilled, func(r durable.Record) {
		require.Equal(t, 1, r.CrashCount)
		if timed {
			require.Less(t, r.StartedAt.Sub(killedAt), leaseDuration+time.Second)
		}
	})
	rerun(t, store, "ended", ofEnded, func(r durable.Record) {
		require.Zero(t, r.CrashCount)
		if timed {
			require.Less(t, r.StartedAt.Sub(endedAt.Add(drainTimeout)), 500*time.Millisecond)
		}
	})
	rerun(t, store, "stopped", ofStopped, nil)
	require.Regexp(t, `late write was refused|handed back`, stopped.log())
}

// rerun looks at the runs that a worker had in hand when it was taken out.
// Those it had all but finished may have been settled by it.
func rerun(t *testing.T, store durable.Store, from string, held map[durable.RunID]durable.Record, look func(durable.Record)) {
	t.Helper()
	elsewhere := 0
	for id := range held {
		r := record(t, store, id)
		if *r.Worker == from {
			continue
		}
		elsewhere++
		if look != nil {
			look(r)
		}
	}
	require.Positive(t, elsewhere, "nothing of %s was executed elsewhere", from)
}

func TestPoisonAmongInnocents_PostgreSQL(t *testing.T) {
	t.Parallel()
	poison(t, pgtest.Database(t))
}

func TestPoisonAmongInnocents_SQLite(t *testing.T) {
	t.Parallel()
	poison(t, sqliteDSN(t))
}

// poison lets one run kill its worker again and again, among fifty others.
func poison(t *testing.T, dsn string) {
	t.Helper()
	store := openStore(t, dsn)
	ids := enqueueNaps(t, store, 50, 100*time.Millisecond)
	receipt, err := death.Enqueue(t.Context(), durable.NewClient(store), deathArgs{})
	require.NoError(t, err)
	over := make(chan struct{})
	supervised := make(chan struct{})
	go func() { // whoever dies is started again, as containers are
		defer close(supervised)
		for n := 0; ; n++ {
			w := startWorker(t, dsn, fmt.Sprintf("w%d", n))
			select {
			case <-w.done:
			case <-over:
				return
			}
		}
	}()
	defer func() { close(over); <-supervised }()
	until(t, store, 90*time.Second, "the poison is dead, the others succeed", func(c map[durable.State]durable.Count) bool {
		return c[durable.Succeeded].N == 50 && c[durable.Dead].N == 1
	})
	r := record(t, store, receipt.ID)
	require.Equal(t, durable.Dead, r.State)
	require.Equal(t, 4, r.CrashCount)
	require.Contains(t, *r.Error, "crashed its worker 4 times")
	for _, id := range ids {
		require.Empty(t, failures(record(t, store, id)))
	}
}
