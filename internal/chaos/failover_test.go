package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// TestFailover_AsynchronousStandby and TestFailover_SynchronousStandby kill the primary under
// load and promote its standby, which has received nothing for a while. With
// DURABLE_TEST_LONG: ten times, and with two workers and with twenty.
func TestFailover_AsynchronousStandby(t *testing.T) {
	t.Parallel()
	failovers(t, pgtest.Asynchronous)
}

func TestFailover_SynchronousStandby(t *testing.T) {
	t.Parallel()
	failovers(t, pgtest.Synchronous)
}

func failovers(t *testing.T, standby pgtest.Synchrony) {
	t.Helper()
	rounds, fleets := 1, []int{2}
	if os.Getenv("DURABLE_TEST_LONG") != "" {
		rounds, fleets = 10, []int{2, 20}
	}
	for _, workers := range fleets {
		for round := range rounds {
			t.Run(fmt.Sprintf("%d workers, %d", workers, round), func(t *testing.T) { failOver(t, standby, workers) })
		}
	}
}

// failOver loses a primary with what its standby has not received.
func failOver(t *testing.T, synchrony pgtest.Synchrony, size int) {
	t.Helper()
	primary := pgtest.StartPrivate(t, pgtest.Options{})
	migrated := openStore(t, primary.URL())
	standby := primary.Standby(t, synchrony)
	dsn := primary.Either(standby)
	var fleet []*worker
	for i := range size {
		fleet = append(fleet, startWorker(t, dsn, fmt.Sprintf("w%d", i), "DURABLE_MAX_CONCURRENT_RUNS=20"))
	}
	load := startLoad(t, dsn)
	until(t, migrated, time.Minute, "runs end", func(c map[durable.State]store.Count) bool { return c[durable.Succeeded].N >= 40 })

	standby.Detach(t)
	lost := 50*time.Millisecond + time.Duration(rand.IntN(500))*time.Millisecond
	if synchrony == pgtest.Synchronous { // until settles give up to wait, and are repeated
		lost += 2500 * time.Millisecond
	}
	<-time.After(lost)
	primary.Stop(t, pgtest.Killed)
	before := len(load.acks()) + burst // one answer may be on its way
	standby.Promote(t)
	watch := watchLeases(t, standby.URL())
	<-time.After(leaseDuration)
	load.stop()
	promoted := openStore(t, standby.URL())
	until(t, promoted, 2*time.Minute, "all runs end", nothingOpen)
	watch.stop()
	require.Zero(t, watch.most, "running runs without a lease")
	require.Greater(t, watch.looks, 20)
	judge(t, promoted, fleet, load, before, synchrony)
}

// judge compares what is there with what was acknowledged.
func judge(t *testing.T, db backend.Store, fleet []*worker, load *load, before int, synchrony pgtest.Synchrony) {
	t.Helper()
	var logs strings.Builder
	for _, w := range fleet {
		logs.WriteString(w.log())
	}
	acknowledged, missing, crashed := load.acks(), 0, 0
	for i, id := range acknowledged {
		r, err := db.Run(t.Context(), id)
		if err != nil {
			require.ErrorIs(t, err, durable.ErrNotFound)
			require.Less(t, i, before, "an enqueue that the new primary has acknowledged")
			missing++
			continue
		}
		if r.CrashCount > 0 {
			crashed++
		}
	}
	if !strings.Contains(logs.String(), `why="not renewed in time"`) { // else the machine was too slow to tell crashes
		require.Zero(t, crashed, "no worker has crashed")
		counts, err := db.Counts(t.Context())
		require.NoError(t, err)
		require.Zero(t, counts[durable.Dead].N, "of those that may not begin twice")
	}
	again := strings.Count(logs.String(), "event=run.settled_again")
	t.Logf("%d enqueues acknowledged, %d lost; %d of %d workers settled runs again", len(acknowledged), missing, again, len(fleet))
	if synchrony == pgtest.Synchronous {
		require.Zero(t, missing, "a synchronous standby loses nothing that was acknowledged")
		require.Zero(t, again, "nor an outcome that a worker took for settled")
	}
}

// burst is how many runs are enqueued together.
const burst = 10

// load enqueues naps until it is stopped, in bursts that one claim takes and whose runs end
// one after another.
type load struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu  sync.Mutex
	ids []durable.RunID // acknowledged
}

func startLoad(t *testing.T, dsn string) *load {
	t.Helper()
	db, err := backend.Open(t.Context(), dsn, backend.Config{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel}
	l.done.Go(func() {
		for ctx.Err() == nil {
			l.enqueue(ctx, db)
			<-time.After(50 * time.Millisecond)
		}
	})
	t.Cleanup(func() { l.stop(); db.Close() })
	return l
}

func (l *load) enqueue(ctx context.Context, db backend.Store) {
	runs := make([]durable.NewRun, burst)
	for i := range runs {
		policy := []store.CrashPolicy{store.CrashRetry, store.CrashDead}[i%2]
		runs[i] = nap.New(napArgs{For: store.Duration(time.Duration(i*i*10) * time.Millisecond)}, durable.OnCrash(policy))
	}
	bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := db.Enqueue(bounded, runs...); err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, run := range runs {
		l.ids = append(l.ids, run.ID)
	}
}

func (l *load) stop() { l.cancel(); l.done.Wait() }

func (l *load) acks() []durable.RunID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids
}

// leaseWatch counts the running runs without a lease, again and again.
type leaseWatch struct {
	cancel      context.CancelFunc
	done        sync.WaitGroup
	most, looks int
}

func watchLeases(t *testing.T, dsn string) *leaseWatch {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	w := &leaseWatch{cancel: cancel}
	w.done.Go(func() {
		defer conn.Close(context.Background())
		for ctx.Err() == nil {
			var n int
			err := conn.QueryRow(ctx, `select count(*) from durable.runs r where r.state = 1
				and not exists (select from durable.leases l where l.claim_id = r.claim_id)`).Scan(&n)
			if err == nil {
				w.most, w.looks = max(w.most, n), w.looks+1
			}
			<-time.After(50 * time.Millisecond)
		}
	})
	t.Cleanup(w.stop)
	return w
}

func (w *leaseWatch) stop() { w.cancel(); w.done.Wait() }
