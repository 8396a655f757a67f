package chaos_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
)

// A process that stood still for longer than a run's timeout and the grace after
// it accuses no handler that returns as soon as it is asked to.
func TestStoodStill_HandlerIsNotAccused(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "durable.db")
	db := openStore(t, dsn)
	stopped := startWorker(t, dsn, "stopped", "DURABLE_LEASE_DURATION=60s", "DURABLE_CANCEL_GRACE=1s")
	run := nap.New(napArgs{For: store.Duration(time.Hour)}, durable.Timeout(3*time.Second), durable.MaxAttempts(1))
	_, err := durable.NewClient(db).Enqueue(t.Context(), run)
	require.NoError(t, err)
	until(t, db, time.Minute, "it executes", func(map[durable.State]store.Count) bool { return len(runningOn(t, db, "stopped")) == 1 })
	at := stopped.signal(syscall.SIGSTOP)
	<-time.After(time.Until(at.Add(5 * time.Second)))
	stopped.signal(syscall.SIGCONT)
	until(t, db, time.Minute, "it has ended", func(counts map[durable.State]store.Count) bool { return counts[durable.Dead].N == 1 })
	require.NotContains(t, *record(t, db, run.ID).Error, "ignored its context")
	require.NotContains(t, stopped.log(), "handler is stuck")
}
