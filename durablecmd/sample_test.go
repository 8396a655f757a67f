package durablecmd_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durablecmd"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/operate"
)

func TestScrapesReadTheDatabaseNowAndThen(t *testing.T) {
	t.Parallel()
	now, reads, alive := time.Hour, 0, 10
	var failed error
	latest := durablecmd.Sampling(func(context.Context) (operate.Sample, error) {
		reads++
		return operate.Sample{Alive: alive}, failed
	}, func() time.Duration { return now })
	scrape := func(after time.Duration, wantReads int, wantAge time.Duration) {
		t.Helper()
		now += after
		d := latest(t.Context())
		require.NotNil(t, d)
		require.Equal(t, wantReads, reads)
		require.Equal(t, wantAge, d.Age)
	}
	scrape(0, 1, 0)
	scrape(15*time.Second, 1, 15*time.Second)
	scrape(74*time.Second, 1, 89*time.Second) // 30 s, and 6 s for each of ten workers
	scrape(time.Second, 2, 0)
	failed = errors.New("gone")
	scrape(90*time.Second, 3, 90*time.Second)
	scrape(time.Second, 3, 91*time.Second) // it is not asked again with each scrape
	failed, alive = nil, 1000
	scrape(90*time.Second, 4, 0)
	scrape(149*time.Second, 4, 149*time.Second) // and at most 2 min
	scrape(time.Second, 5, 0)
}

func TestLocksAreProbedNowAndThen(t *testing.T) {
	t.Parallel()
	now, probes, health := time.Hour, 0, lock.Healthy
	latest := durablecmd.ProbingLocks(func(ctx context.Context) (lock.Health, error) {
		_, bounded := ctx.Deadline()
		require.True(t, bounded)
		probes++
		return health, nil
	}, func() time.Duration { return now })
	ask := func(after time.Duration, wantProbes int, want lock.Health) {
		t.Helper()
		now += after
		health, shown := latest(t.Context())
		require.Equal(t, want, health)
		require.Equal(t, want == lock.Healthy, shown.Healthy)
		require.Equal(t, wantProbes, probes)
	}
	ask(0, 1, lock.Healthy)
	health = lock.Unhealthy
	ask(9*time.Second, 1, lock.Healthy)
	ask(time.Second, 2, lock.Unhealthy)
	health = lock.Healthy
	ask(10*time.Second, 3, lock.Healthy)
}

func TestAProbeThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	var hangs atomic.Bool
	begun, end := make(chan struct{}), make(chan struct{})
	latest := durablecmd.ProbingLocks(func(context.Context) (lock.Health, error) {
		if hangs.Load() {
			close(begun)
			<-end
			return lock.Unhealthy, nil
		}
		return lock.Healthy, nil
	}, func() time.Duration { return time.Duration(now.Load()) })
	latest(t.Context())
	hangs.Store(true)
	now.Store(int64(time.Minute))
	var probing sync.WaitGroup
	probing.Go(func() { latest(t.Context()) })
	<-begun
	answered := make(chan lock.Health, 1)
	go func() {
		health, _ := latest(t.Context())
		answered <- health
	}()
	select {
	case health := <-answered:
		require.Equal(t, lock.Healthy, health, "what is known")
	case <-time.After(10 * time.Second):
		t.Error("it waits for the probe of another")
	}
	close(end)
	probing.Wait()
}
