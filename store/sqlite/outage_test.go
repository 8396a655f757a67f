package sqlite_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// Another process keeps the file's write lock for longer than a lease: every write
// fails, every read is answered. Two workers have twenty runs in hand whose
// handlers succeed meanwhile; a third has nothing to do.
func TestAFileThatTakesNoWritesCostsNoRunACrash(t *testing.T) {
	path := newPath(t)
	s, db, _ := sweepable(t, path)
	job := durable.NewJob[struct{}]("mail")
	var begun atomic.Int64
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	begin := func(served durable.Job[struct{}]) {
		store, err := sqlite.Open(t.Context(), path, sqlite.Config{LockTimeout: 50 * time.Millisecond})
		require.NoError(t, err)
		t.Cleanup(store.Close)
		w := durable.NewWorker(store, durable.WorkerConfig{
			Terms: lease.Terms{Duration: 2 * time.Second}, PollInterval: 100 * time.Millisecond, MaxConcurrentRuns: 10})
		durable.Register(w, served, func(context.Context, *durable.Run[struct{}]) error {
			begun.Add(1)
			<-release
			return nil
		})
		working.Go(func() { require.NoError(t, w.Run(ctx)) })
	}
	for range 20 / 2 {
		_, err := durable.NewClient(s).Enqueue(t.Context(), job.New(struct{}{}), job.New(struct{}{}, durable.OnCrash(store.CrashDead)))
		require.NoError(t, err)
	}
	begin(durable.NewJob[struct{}]("another"))
	begin(job)
	begin(job)
	require.Eventually(t, func() bool { return begun.Load() == 20 }, time.Minute, 10*time.Millisecond)

	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	close(release)
	require.Eventually(t, func() bool {
		return count(t, db, "SELECT count(*) FROM leases WHERE expires_at > ?", time.Now().Add(-2*time.Second).UnixMicro()) == 0
	}, time.Minute, 50*time.Millisecond)
	require.Equal(t, 20, count(t, db, "SELECT count(*) FROM runs WHERE state = 1"))
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return count(t, db, "SELECT count(*) FROM runs WHERE state IN (0, 1)") == 0 }, time.Minute, 50*time.Millisecond)
	require.Equal(t, 20, count(t, db, "SELECT count(*) FROM runs WHERE state = 2 AND crash_count = 0"))
	require.EqualValues(t, 20, begun.Load(), "nothing was executed twice")
}
