package chaos_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/store"
)

type spinArgs struct {
	For store.Duration `json:"for"` // of CPU time
}

var spin = durable.NewJob[spinArgs]("spin")

// registerSpin registers the job whose handler only computes, and does not look at its
// context.
func registerSpin(app *durablecmd.App) {
	per := sync.OnceValue(calibrate)
	durable.Register(app.Worker, spin, func(_ context.Context, run *durable.Run[spinArgs]) error {
		for range time.Duration(run.Args.For) / per() {
			compute()
		}
		return nil
	})
}

// calibrate returns how long compute takes when nothing disturbs it.
func calibrate() time.Duration {
	least := time.Hour
	for range 50 {
		began := time.Now()
		compute()
		least = min(least, time.Since(began))
	}
	return max(least, time.Microsecond)
}

var computed atomic.Int64

func compute() {
	sum := int64(0)
	for i := range int64(100_000) {
		sum += i * i
	}
	computed.Store(sum)
}

// A process has one CPU and two hundred handlers that only compute, as many as it may
// execute. If all of them began, each step of a heartbeat would take half of the lease.
func TestHandlersThatComputeDoNotCostThemTheirLeases(t *testing.T) {
	t.Parallel()
	const runs, lasts = 200, 25 * time.Millisecond
	dsn := pgtest.Database(t)
	db := openStore(t, dsn)
	all := make([]durable.NewRun, runs)
	for i := range all {
		all[i] = spin.New(spinArgs{For: store.Duration(lasts)})
	}
	_, err := durable.NewClient(db).Enqueue(t.Context(), all...)
	require.NoError(t, err)
	w := startWorker(t, dsn, "computes", "GOMAXPROCS=1", "DURABLE_MAX_CONCURRENT_RUNS=200", "DURABLE_LEASE_DURATION=3s")
	until(t, db, 2*time.Minute, "every run succeeds", succeeded(runs))
	twice := 0
	for _, run := range all {
		r := record(t, db, run.ID)
		require.LessOrEqual(t, r.CrashCount, 1, "begun at most twice")
		twice += r.CrashCount
	}
	require.Less(t, twice, runs/4, "few are begun twice, on a machine that is as busy as it may be")
	require.True(t, strings.Contains(w.log(), "event=worker.short_of_cpu"), "the log names the cause")
}
