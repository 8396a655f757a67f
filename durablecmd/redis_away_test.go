package durablecmd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/internal/redistest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/backend"
)

// guarded is what happens under one named lock in two worker programs.
type guarded struct {
	mu      sync.Mutex
	holders int            // handlers under the lock whose context has not ended
	overlap int            // times when there were two
	fence   lease.Fence    // the largest of them
	stale   int            // effects that a resource refuses: it has seen a larger fence
	done    map[string]int // effects of each run
	refused map[string]int // why the lock was not had

	failed atomic.Int64 // calls of Redis
	lost   atomic.Int64 // grants whose holder has noticed
}

// enter is a holder that begins, until leave.
func (g *guarded) enter(ctx context.Context, grant lock.Grant) (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.holders++; g.holders > 1 {
		g.overlap++
	}
	if grant.Fence < g.fence {
		g.stale++
	}
	g.fence = max(g.fence, grant.Fence)
	once := sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.holders--
	})
	context.AfterFunc(ctx, once) // who has lost the lock does nothing more
	return once
}

// register registers the job plain, which needs no lock, and guarded, which does its work
// under one and tries again for as long as it is refused.
func (g *guarded) register(_ context.Context, app *durablecmd.App) error {
	locker := lock.NewLocker(app.Locks, lock.LockerConfig{
		Waits: app.Locks, Logger: app.Logger, CallTimeout: 500 * time.Millisecond,
		Hooks: lock.Hooks{Called: func(call lock.Call) {
			if call.Err != nil {
				g.failed.Add(1)
			}
		}},
	})
	keeper := heartbeat.New(locker, heartbeat.Config{
		Terms: lease.Terms{Duration: 2 * time.Second}.WithDefaults(), Elapsed: lease.Elapsed, Random: rand.Float64, Logger: app.Logger,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() { keeper.Run(ctx) })
	app.OnStop(func(context.Context) error {
		cancel()
		keeping.Wait()
		return nil
	})
	durable.Register(app.Worker, durable.NewJob[struct{}]("plain"), func(context.Context, *durable.Run[struct{}]) error { return nil })
	durable.Register(app.Worker, durable.NewJob[struct{}]("guarded"), func(ctx context.Context, run *durable.Run[struct{}]) error {
		err := lock.Guard(ctx, keeper, locker, "ledger", lock.Terms{Wait: 5 * time.Second, Policy: lock.Fail}, func(ctx context.Context, grant lock.Grant) error {
			leave := g.enter(ctx, grant)
			defer leave()
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(50 * time.Millisecond):
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			g.done[run.ID.String()]++
			return nil
		})
		switch {
		case err == nil:
			return nil
		case errors.Is(err, lease.ErrLost):
			g.lost.Add(1)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.refused[fmt.Sprintf("held %t, unavailable %t, lost %t", errors.Is(err, lock.ErrHeld), errors.Is(err, lock.ErrUnavailable), errors.Is(err, lease.ErrLost))]++
		return durable.RetryAfter(500*time.Millisecond, err)
	})
	return nil
}

// lockMetric reads durable_lock_store_healthy.
func lockMetric(t *testing.T, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	require.NoError(t, err)
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^durable_lock_store_healthy (\d)$`).FindSubmatch(text)
	require.NotNil(t, found, string(text))
	return string(found[1])
}

// cpu is what this process has used, with the two workers in it.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// TestAWorkerWhoseRedisGoesAway kills the server of the locks, and stops it so that it
// takes connections and does not answer: what is on PostgreSQL goes on, what needs the
// lock is refused by name and done when the server is back, and nothing spins. It measures
// CPU, so no other test runs beside it.
func TestAWorkerWhoseRedisGoesAway(t *testing.T) { //nolint:paralleltest // it measures the process
	redis := redistest.Port(t)
	env := []string{"DURABLE_DATABASE_URL=" + pgtest.Database(t), "DURABLE_REDIS_URL=" + redis.URL(), "DURABLE_HTTP_ADDR=127.0.0.1:0"}
	g := &guarded{done: map[string]int{}, refused: map[string]int{}}
	workers := []*service{serve(t, env, g.register)}
	workers[0].logs("worker started")
	workers = append(workers, serve(t, env, g.register))
	workers[1].logs("worker started")
	db, err := backend.Open(t.Context(), strings.TrimPrefix(env[0], "DURABLE_DATABASE_URL="), backend.Config{})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	client := durable.NewClient(db)
	enqueue := func(job string, n int) (ids []durable.RunID) {
		for range n {
			receipt, err := durable.NewJob[struct{}](job, durable.MaxAttempts(1000)).Enqueue(t.Context(), client, struct{}{})
			require.NoError(t, err)
			ids = append(ids, receipt.ID)
		}
		return ids
	}
	healthy := func(want string, metric string) {
		t.Helper()
		for _, w := range workers {
			address := w.address()
			require.Eventually(t, func() bool {
				code, body := status(t, address, "/readyz")
				return code == http.StatusOK && body["locks"] == want
			}, time.Minute, 100*time.Millisecond, "a worker is ready, with or without locks")
			require.Equal(t, metric, lockMetric(t, address))
		}
	}
	ended := func(ids ...durable.RunID) {
		t.Helper()
		for _, id := range ids {
			require.Eventually(t, func() bool {
				record, err := db.Run(t.Context(), id)
				return err == nil && record.State == durable.Succeeded
			}, time.Minute, 20*time.Millisecond)
		}
	}
	all := enqueue("guarded", 4)
	ended(append(all, enqueue("plain", 1)...)...)
	healthy("healthy", "1")

	for _, fault := range []struct {
		name       string
		begin, end func()
	}{
		{"killed", redis.Stop, func() { redis.Start(t) }},
		{"stopped", func() { redis.Signal(t, syscall.SIGSTOP) }, func() { redis.Signal(t, syscall.SIGCONT) }},
	} {
		waiting := enqueue("guarded", 6) // some hold the lock, or wait for it, as the fault begins
		fault.begin()
		waiting = append(waiting, enqueue("guarded", 4)...)
		healthy("unhealthy", "0")
		ended(enqueue("plain", 3)...)

		lines, ofLocks, failed, used, began := logged(workers, "\n"), linesOfOutage(workers), g.failed.Load(), cpu(t), time.Now()
		<-time.After(3 * time.Second)
		took := time.Since(began)
		require.Less(t, cpu(t)-used, took/2, "%s: nothing spins", fault.name)
		require.Less(t, logged(workers, "\n")-lines, 200, "%s: lines for each of twenty attempts a second, and few more", fault.name)
		require.Less(t, linesOfOutage(workers)-ofLocks, 10, "%s: beside each refusal, an outage is a line", fault.name)
		require.Less(t, g.failed.Load()-failed, 8+int64(3*took/time.Second), "%s: each of two programs asks once in a pause, whatever its handlers do", fault.name)

		fault.end()
		ended(waiting...)
		healthy("healthy", "1")
		all = append(all, waiting...)
		g.mu.Lock()
		if fault.name == "stopped" { // a server that has forgotten its locks, as docs/locks.md says, may grant one again
			require.Zero(t, g.overlap, "never two under the lock")
		}
		g.overlap = 0
		g.mu.Unlock()
	}

	for _, w := range workers {
		w.signal()
		require.Equal(t, 0, w.ends())
		require.Contains(t, w.stderr.String(), `"event":"lock.degraded"`)
		require.Contains(t, w.stderr.String(), `"event":"lock.back"`)
	}
	require.Zero(t, g.stale, "each fence is larger than all before")
	require.Zero(t, g.holders)
	for _, id := range all {
		require.Equal(t, 1, g.done[id.String()], "%s: once", id)
	}
	require.Len(t, g.done, len(all))
	for why := range g.refused {
		require.NotEqual(t, "held false, unavailable false, lost false", why, "each refusal says why")
	}
	require.NotEmpty(t, g.refused)
}

// logged counts what the workers have logged.
func logged(workers []*service, text string) (n int) {
	for _, w := range workers {
		n += strings.Count(w.stderr.String(), text)
	}
	return n
}

// linesOfOutage counts what is said of locks beside each refusal.
func linesOfOutage(workers []*service) int {
	return logged(workers, `"event":"lock.`) - logged(workers, `"event":"lock.unavailable"`)
}
