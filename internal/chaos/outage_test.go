package chaos_test

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

// TestOutage_ServerStoppedForLongerThanALease takes the database away for longer
// than any lease lasts. Handlers are cancelled before their leases run out, workers
// go on without a restart, nothing is lost and no one is charged.
func TestOutage_ServerStoppedForLongerThanALease(t *testing.T) {
	t.Parallel()
	const lasts = 9 * time.Second
	server := pgtest.StartPrivate(t, pgtest.Options{})
	dsn := pgtest.DatabaseOn(t, server.URL())
	db, gate := openStore(t, dsn), filepath.Join(t.TempDir(), "gate")
	term := "DURABLE_LEASE_DURATION=" + lasts.String()
	workers := []*worker{startWorker(t, dsn, "w1", term), startWorker(t, dsn, "w2", term)}
	ids := enqueueHeld(t, db, 120, gate)
	until(t, db, time.Minute, "all run", func(c map[durable.State]store.Count) bool { return c[durable.Running].N == 120 })

	stoppedAt := time.Now()
	server.Stop(t, pgtest.Immediate)
	<-time.After(lasts + 3*time.Second)
	var noticed []time.Duration
	for _, w := range workers {
		noticed = append(noticed, noticedAt(t, w).Sub(stoppedAt))
	}
	// The margin before the lease's end is a second: a machine that stops a
	// process for longer may make one of the two late, which is assumed not to be.
	require.Less(t, slices.Min(noticed), lasts, "none was cancelled before its lease ran out")
	require.Less(t, slices.Max(noticed), lasts+2*time.Second, "cancelled too late")
	server.Start(t)
	release(t, gate)
	until(t, db, 2*time.Minute, "every run succeeds", succeeded(120))
	for _, id := range ids {
		r := record(t, db, id)
		require.Equal(t, 1, r.Attempt, "%v", failures(r))
		require.Empty(t, failures(r))
		require.Zero(t, r.CrashCount, "an outage that a worker lives through is not a crash")
	}
	for _, w := range workers {
		select {
		case <-w.done:
			t.Errorf("%s has ended", w.name)
		default:
		}
	}
}

var lostLine = regexp.MustCompile(`time=(\S+) level=WARN msg="lease lost"`)

// noticedAt returns when a worker first logged that a lease was lost.
func noticedAt(t *testing.T, w *worker) time.Time {
	t.Helper()
	require.Eventually(t, func() bool { return lostLine.MatchString(w.log()) }, time.Minute, 10*time.Millisecond, "no lease was lost")
	found := lostLine.FindStringSubmatch(w.log())
	at, err := time.Parse(time.RFC3339Nano, found[1])
	require.NoError(t, err)
	return at
}

// TestOutage_BackendsTerminatedAtRandom ends connections under load, any of
// them, every few milliseconds.
func TestOutage_BackendsTerminatedAtRandom(t *testing.T) {
	t.Parallel()
	server := pgtest.StartPrivate(t, pgtest.Options{})
	dsn := pgtest.DatabaseOn(t, server.URL())
	store := openStore(t, dsn)
	for _, name := range []string{"w1", "w2", "w3"} {
		startWorker(t, dsn, name, "DURABLE_MAX_CONCURRENT_RUNS=20")
	}
	const total = 6000
	terminated, ended := make(chan int), make(chan struct{})
	go func() { terminated <- terminateBackends(t.Context(), server.URL(), ended) }()
	for range total / 100 {
		enqueueNaps(t, store, 100, 50*time.Millisecond)
	}
	until(t, store, 8*time.Minute, "every run succeeds", succeeded(total))
	close(ended)
	n := <-terminated
	require.Greater(t, n, 20, "connections ended")
	t.Logf("%d connections ended", n)
	filter := durable.Filter{Limit: 200}
	for {
		page, err := store.Runs(t.Context(), filter)
		require.NoError(t, err)
		for _, r := range page.Runs {
			require.Equal(t, 1, r.Attempt)
		}
		if filter.Before = page.Next; page.Next == (durable.RunID{}) {
			return
		}
	}
}

// terminateBackends ends a random client connection again and again, and
// returns how many.
func terminateBackends(ctx context.Context, url string, ended <-chan struct{}) (n int) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0
	}
	defer conn.Close(ctx)
	for {
		select {
		case <-ended:
			return n
		case <-time.After(time.Duration(20+rand.IntN(100)) * time.Millisecond):
		}
		tag, err := conn.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
			where application_name = 'durable' and pid <> pg_backend_pid() order by random() limit 1`)
		if err == nil {
			n += int(tag.RowsAffected())
		}
	}
}
