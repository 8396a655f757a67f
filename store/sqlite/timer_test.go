package sqlite_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

// TestTimer_TicksOnceForHostsWhoseClocksDiffer: three hosts whose clocks are
// 200 ms apart execute a timer of one second, of 5 ms each. A lock around the
// execution would let each host take it in turn; here a tick is one occurrence.
func TestTimer_TicksOnceForHostsWhoseClocksDiffer(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var mu sync.Mutex
	ticks := map[int64]int{}
	tick := durable.NewJob[struct{}]("tick")
	var hosts sync.WaitGroup
	faults := make([]error, 3)
	for i := range faults {
		ahead := time.Duration(i-1) * 200 * time.Millisecond
		s := open(t, path, sqlite.Config{Clock: func() time.Time { return time.Now().Add(ahead) }})
		if i == 0 {
			migrate(t, s)
		}
		w := durable.NewWorker(s, durable.WorkerConfig{PollInterval: 50 * time.Millisecond})
		durable.Register(w, tick, func(_ context.Context, run *durable.Run[struct{}]) error {
			mu.Lock()
			ticks[run.DueAt.UnixMilli()]++
			if len(ticks) == 5 {
				cancel()
			}
			mu.Unlock()
			<-time.After(5 * time.Millisecond)
			return nil
		})
		durable.AddSchedule(w, "timer", tick, struct{}{}, store.Every(time.Second), durable.Overlap(store.OverlapAllow))
		hosts.Go(func() { faults[i] = w.Run(ctx) })
	}
	hosts.Wait()
	require.NoError(t, errors.Join(faults...))
	require.GreaterOrEqual(t, len(ticks), 4)
	instants := slices.Sorted(maps.Keys(ticks))
	for i, at := range instants {
		require.Equal(t, 1, ticks[at], "executions of the tick at %v", time.UnixMilli(at).UTC())
		require.Zero(t, at%1000, "a tick is at a full second, whichever process asks")
		require.True(t, i == 0 || at-instants[i-1] == 1000, "no tick is left out")
	}
}
