package chaos_test

import (
	"context"
	"fmt"
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
		fmt.Println("spin begun", run.ID)
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

// A process has one CPU and a hundred and fifty handlers that only compute, as many as it may
// execute. If all of them began, each step of a heartbeat would take most of a lease.
func TestHandlersThatComputeDoNotCostThemTheirLeases(t *testing.T) {
	t.Parallel()
	const runs, lasts = 150, 50 * time.Millisecond
	dsn := pgtest.Database(t)
	db := openStore(t, dsn)
	all := make([]durable.NewRun, runs)
	for i := range all {
		all[i] = spin.New(spinArgs{For: store.Duration(lasts)})
	}
	_, err := durable.NewClient(db).Enqueue(t.Context(), all...)
	require.NoError(t, err)
	w := startWorker(t, dsn, "computes", "GOMAXPROCS=1", "DURABLE_MAX_CONCURRENT_RUNS=150", "DURABLE_LEASE_DURATION=2s")
	other := startWorker(t, dsn, "takes over what is lost", "DURABLE_MAX_CONCURRENT_RUNS=1", "DURABLE_LEASE_DURATION=2s")
	until(t, db, 4*time.Minute, "every run succeeds", succeeded(runs))
	log := w.log() + other.log()
	begun := strings.Count(log, "spin begun")
	require.Less(t, begun, runs*5/4, "few are begun twice, on a machine that is as busy as it may be")
	for _, run := range all {
		require.LessOrEqual(t, strings.Count(log, "spin begun "+run.ID.String()), 2)
	}
	require.True(t, strings.Contains(w.log(), "event=worker.short_of_cpu"), "the log names the cause")
}
