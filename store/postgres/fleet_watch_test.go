package postgres_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// However runs are enqueued, one soon after the other, by one process or by several, few
// notifications go out and few workers look: the one that looks by itself says so on the
// server.
func TestFleet_AnyEnqueuesWakeFew(t *testing.T) {
	const workers, callers, runs = 8, 6, 200
	mail := durable.NewJob[struct{}]("mail")
	for name, enqueue := range map[string]func(t *testing.T, all []opened, conn *pgx.Conn, i int) error{
		"by several processes": func(t *testing.T, all []opened, _ *pgx.Conn, i int) error {
			_, err := all[i%len(all)].Enqueue(t.Context(), mail.New(struct{}{}))
			return err
		},
		"with keys": func(t *testing.T, all []opened, _ *pgx.Conn, i int) error {
			_, err := all[0].Enqueue(t.Context(), mail.New(struct{}{}, durable.Unique(fmt.Sprint(i))))
			return err
		},
		"in transactions": func(t *testing.T, all []opened, conn *pgx.Conn, _ int) error {
			return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				_, err := all[0].WithTx(tx).Enqueue(t.Context(), mail.New(struct{}{}))
				return err
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			place := openURL(t, pgtest.Database(t), "fleet")
			executed := make(chan durable.RunID, 2*runs)
			fleet := make([]*asking, workers)
			for i := range fleet {
				fleet[i], _ = member(t, place, "mail", executed)
			}
			listening(t, place, workers)
			all := make([]opened, callers)
			for i := range all {
				all[i] = openMigrated(t, place.url, place.schema)
			}
			conn, heard := connect(t, place.url), notifications(t, place)
			steadily := func(n int) {
				t.Helper()
				pace := time.NewTicker(10 * time.Millisecond)
				defer pace.Stop()
				for i := range n {
					require.NoError(t, enqueue(t, all, conn, i+n))
					<-pace.C
				}
				for range n {
					select {
					case <-executed:
					case <-time.After(30 * time.Second):
						t.Fatal("a run was not found")
					}
				}
			}
			steadily(100) // they get to know each other
			claims, before := int64(0), heard.Load()
			for _, a := range fleet {
				claims -= a.claims.Load()
			}
			steadily(runs)
			for _, a := range fleet {
				claims += a.claims.Load()
			}
			notified := heard.Load() - before
			t.Logf("%d claims and %d notifications for %d runs", claims, notified, runs)
			require.LessOrEqual(t, notified, int64(3*runs/4))
			require.LessOrEqual(t, claims, int64(3*runs))
		})
	}
}

// notifications counts what workers are notified of from now on.
func notifications(t *testing.T, place opened) *atomic.Int64 {
	t.Helper()
	conn, n := connect(t, place.url), new(atomic.Int64)
	_, err := conn.Exec(t.Context(), "LISTEN "+place.schema+"_wake")
	require.NoError(t, err)
	var counting sync.WaitGroup
	counting.Go(func() {
		for {
			heard, err := conn.WaitForNotification(t.Context())
			if err != nil {
				return
			}
			if strings.Contains(heard.Payload, " d") {
				n.Add(1)
			}
		}
	})
	t.Cleanup(counting.Wait) // before the connection is closed
	return n
}

// watchers are the connections of workers that look by themselves.
const watchers = "FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND objsubid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"

// The worker that looks by itself dies again and again, and no one polls. Each run starts
// soon all the same.
func TestFleet_AWatchEndsWithItsWorker(t *testing.T) {
	place := openURL(t, pgtest.Database(t), "fleet")
	const workers, runs = 6, 400
	executed := make(chan time.Duration, runs)
	for range workers {
		busyMember(t, place, 100, 0, executed)
	}
	listening(t, place, workers)
	conn, killed := connect(t, place.url), 0
	waits := stream(t, place, runs, executed, func(i int) {
		if i%30 == 29 {
			var n int
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid "+watchers+") alive").Scan(&n))
			killed += n
		}
	})
	t.Logf("%d watchers killed; runs waited %v at the median, %v at most", killed, waits[runs/2], waits[runs-1])
	require.Positive(t, killed)
	require.Less(t, waits[runs-1], 4*time.Second)
}

// A session says that it looks, and does not: that of a worker that is stopped. Runs are notified of
// when its time is over.
func TestFleet_AWatchThatFindsNothingEnds(t *testing.T) {
	place := openURL(t, pgtest.Database(t), "fleet")
	const workers, runs = 3, 20
	executed := make(chan time.Duration, runs)
	for range workers {
		busyMember(t, place, 100, 0, executed)
	}
	listening(t, place, workers)
	conn, name := connect(t, place.url), fnv.New32a()
	_, _ = name.Write([]byte("durable/fleet/watch"))
	class := int64(int32(name.Sum32())) << 32
	var longest time.Duration
	for range runs {
		_, err := conn.Exec(t.Context(), `SELECT pg_try_advisory_lock($1 | (lanes.id::bigint << 13) | ((floor(extract(epoch FROM clock_timestamp()) * 10)::bigint + more) & 4095))
			FROM fleet.lanes, generate_series(0, 3) AS tenths (more)`, class)
		require.NoError(t, err)
		_, err = place.Enqueue(t.Context(), durable.NewJob[instant]("busy").New(instant{time.Now()}))
		require.NoError(t, err)
		select {
		case waited := <-executed:
			longest = max(longest, waited)
		case <-time.After(30 * time.Second):
			t.Fatal("a run was not found")
		}
	}
	t.Logf("the longest wait was %v", longest)
	require.Greater(t, longest, 300*time.Millisecond, "it is not notified of while one is said to look")
	require.Less(t, longest, 3*time.Second)
}

// Workers that are mostly full leave no run waiting while others have room.
func TestFleet_AFullWorkerLeavesItsWatch(t *testing.T) {
	place := openURL(t, pgtest.Database(t), "fleet")
	const workers, runs = 6, 400
	executed := make(chan time.Duration, runs)
	for range workers {
		busyMember(t, place, 8, 350*time.Millisecond, executed)
	}
	listening(t, place, workers)
	waits := stream(t, place, runs, executed, func(int) {})
	t.Logf("runs waited %v at the median, %v of 95 in 100, %v at most", waits[runs/2], waits[runs*95/100], waits[runs-1])
	require.Less(t, waits[runs*95/100], 200*time.Millisecond)
	require.Less(t, waits[runs-1], 2*time.Second)
}

// stream enqueues runs, one each 10 ms, and returns how long they waited, in order.
func stream(t *testing.T, place opened, runs int, executed <-chan time.Duration, meanwhile func(i int)) []time.Duration {
	t.Helper()
	job, pace, waits := durable.NewJob[instant]("busy"), time.NewTicker(10*time.Millisecond), make([]time.Duration, 0, runs)
	defer pace.Stop()
	collect := func(until int) {
		for len(waits) < until {
			select {
			case waited := <-executed:
				waits = append(waits, waited)
			case <-time.After(30 * time.Second):
				t.Fatal("a run was not found")
			}
		}
	}
	for i := range runs {
		_, err := place.Enqueue(t.Context(), job.New(instant{time.Now()}))
		require.NoError(t, err)
		meanwhile(i)
		<-pace.C
		collect(len(waits) + len(executed))
	}
	collect(runs)
	slices.Sort(waits)
	return waits
}

// busyMember starts a worker that polls each hour, with room for so many runs that take so
// long. It reports how long each waited.
func busyMember(t *testing.T, place opened, room int, takes time.Duration, executed chan<- time.Duration) {
	t.Helper()
	own, err := postgres.Open(t.Context(), place.url, postgres.Config{Schema: place.schema, MaxConns: 2})
	require.NoError(t, err)
	w := durable.NewWorker(own, durable.WorkerConfig{PollInterval: time.Hour, MaxConcurrentRuns: room, Process: new(durable.Process)})
	durable.Register(w, durable.NewJob[instant]("busy"), func(_ context.Context, run *durable.Run[instant]) error {
		executed <- time.Since(run.Args.Due)
		<-time.After(takes)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait(); own.Close() })
}
