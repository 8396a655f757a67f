package chaos_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
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

// killStopTerminate takes three of four workers that share a hundred runs out of
// work in three ways. Every run succeeds and no attempt is charged.
func killStopTerminate(t *testing.T, dsn string, timed bool) {
	t.Helper()
	db, gate := openStore(t, dsn), filepath.Join(t.TempDir(), "gate")
	killed := startWorker(t, dsn, "killed", "DURABLE_MAX_CONCURRENT_RUNS=20")
	stopped := startWorker(t, dsn, "stopped", "DURABLE_MAX_CONCURRENT_RUNS=20")
	ended := startWorker(t, dsn, "ended", "DURABLE_MAX_CONCURRENT_RUNS=20")
	ids := enqueueHeld(t, db, 100, gate)
	until(t, db, time.Minute, "all three work", func(map[durable.State]store.Count) bool {
		return len(runningOn(t, db, "killed")) == 20 && len(runningOn(t, db, "stopped")) == 20 && len(runningOn(t, db, "ended")) == 20
	})
	rescuer := startWorker(t, dsn, "rescuer", "DURABLE_MAX_CONCURRENT_RUNS=400") // room for all of it
	until(t, db, time.Minute, "it works too", func(map[durable.State]store.Count) bool { return len(runningOn(t, db, "rescuer")) == 40 })

	ofKilled, killedAt := runningOn(t, db, "killed"), killed.signal(syscall.SIGKILL)
	ofStopped := runningOn(t, db, "stopped")
	if timed {
		stopped.signal(syscall.SIGSTOP)
	}
	ofEnded, endedAt := runningOn(t, db, "ended"), ended.signal(syscall.SIGTERM)
	drainedAt := ended.exited()
	require.Less(t, drainedAt.Sub(endedAt), drainTimeout+cancelGrace, "a drain takes its time and no more")
	if !timed { // it may have the lock of the file when it is stopped, and then no one gets on
		stopped.signal(syscall.SIGSTOP)
	}
	<-time.After(time.Until(killedAt.Add(2 * leaseDuration)))
	if timed {
		rescued(t, db, len(ids))
	}
	stopped.signal(syscall.SIGCONT)
	rescued(t, db, len(ids)-len(ofStopped))
	release(t, gate)

	until(t, db, time.Minute, "every run succeeds", succeeded(len(ids)))
	for _, id := range ids {
		r := record(t, db, id)
		require.Equal(t, 1, r.Attempt, "an interruption charges no attempt: %v", failures(r))
		require.Empty(t, failures(r))
		if timed {
			require.Equal(t, "rescuer", *r.Worker)
		} else { // the one that lets go of the file may be the first to find what others have left
			require.Contains(t, []string{"rescuer", "stopped"}, *r.Worker)
		}
	}
	for id := range ofKilled {
		r := record(t, db, id)
		crashes(t, 1, r, rescuer)
		if timed {
			require.Less(t, r.StartedAt.Sub(killedAt), leaseDuration+leaseDuration/2)
		}
	}
	for id := range ofEnded {
		r := record(t, db, id)
		crashes(t, 0, r, rescuer, ended)
		if timed { // its leases would have lasted for at least two thirds of their duration more
			require.Less(t, r.StartedAt.Sub(endedAt.Add(drainTimeout)), leaseDuration/2)
		}
	}
	if !timed {
		return
	}
	for id := range ofStopped {
		crashes(t, 1, record(t, db, id), rescuer)
	}
	require.Eventually(t, func() bool { return lateWrite.MatchString(stopped.log()) }, time.Minute, 20*time.Millisecond, "the stopped worker finds out")
}

// rescued waits until the rescuer has so many runs in hand, or more.
func rescued(t *testing.T, db durable.Store, n int) {
	t.Helper()
	until(t, db, time.Minute, "the rescuer has what was left", func(map[durable.State]store.Count) bool {
		return len(runningOn(t, db, "rescuer")) >= n
	})
}

var lateWrite = regexp.MustCompile(`stale settle rejected|handed back`)

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
	db := openStore(t, dsn)
	ids := enqueueNaps(t, db, 50, 100*time.Millisecond)
	receipt, err := death.Enqueue(t.Context(), durable.NewClient(db), deathArgs{})
	require.NoError(t, err)
	over := make(chan struct{})
	supervised := make(chan struct{})
	go func() { // a worker that dies is started again, as containers are
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
	until(t, db, 3*time.Minute, "the poison is dead, the others succeed", func(c map[durable.State]store.Count) bool {
		return c[durable.Succeeded].N == 50 && c[durable.Dead].N == 1
	})
	r := record(t, db, receipt.ID)
	require.Equal(t, durable.Dead, r.State)
	require.Equal(t, 4, r.CrashCount)
	require.Contains(t, *r.Error, "crashed its worker 4 times")
	for _, id := range ids {
		require.Empty(t, failures(record(t, db, id)))
	}
}
