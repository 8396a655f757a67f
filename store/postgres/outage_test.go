package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// The server becomes read-only for longer than a lease. Two workers have twenty
// runs in hand whose handlers succeed meanwhile; a third has nothing to do.
func TestAReadOnlyServerCostsNoRunACrash(t *testing.T) {
	t.Parallel()
	db := openURL(t, pgtest.Database(t), "durable")
	conn := connect(t, db.url)
	database := func(setting string) {
		db.exec(t, conn, "set default_transaction_read_only = off")
		db.exec(t, conn, fmt.Sprintf("alter database %s %s", pgx.Identifier{conn.Config().Database}.Sanitize(), setting))
		db.exec(t, conn, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
	}
	job := durable.NewJob[struct{}]("mail")
	var begun atomic.Int64
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	begin := func(served durable.Job[struct{}]) {
		w := durable.NewWorker(openURL(t, db.url, "durable"), durable.WorkerConfig{
			Terms: lease.Terms{Duration: 2 * time.Second}, PollInterval: 100 * time.Millisecond, MaxConcurrentRuns: 10})
		durable.Register(w, served, func(context.Context, *durable.Run[struct{}]) error {
			begun.Add(1)
			<-release
			return nil
		})
		working.Go(func() { require.NoError(t, w.Run(ctx)) })
	}
	for range 20 / 2 {
		_, err := durable.NewClient(db).Enqueue(t.Context(), job.New(struct{}{}), job.New(struct{}{}, durable.OnCrash(store.CrashDead)))
		require.NoError(t, err)
	}
	begin(durable.NewJob[struct{}]("another"))
	begin(job)
	begin(job)
	require.Eventually(t, func() bool { return begun.Load() == 20 }, time.Minute, 10*time.Millisecond)

	database("set default_transaction_read_only = on")
	close(release)
	require.Eventually(t, func() bool {
		return db.count(t, conn, "select count(*) from %s.leases where expires_at > now() - interval '2 seconds'") == 0
	}, time.Minute, 50*time.Millisecond)
	require.Equal(t, 20, db.count(t, conn, "select count(*) from %s.runs where state = 1"))
	database("reset default_transaction_read_only")
	require.Eventually(t, func() bool { return db.count(t, conn, "select count(*) from %s.runs where state in (0, 1)") == 0 },
		time.Minute, 50*time.Millisecond)
	require.Equal(t, 20, db.count(t, conn, "select count(*) from %s.runs where state = 2 and crash_count = 0"))
	require.EqualValues(t, 20, begun.Load(), "nothing was executed twice")
}
