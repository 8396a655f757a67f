package memory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

// TestThreePodsOneRunPerTick is three pods whose clocks differ by 200 ms and a
// job of 5 ms. A lock alone lets each of them run every tick, one after the
// other; a schedule runs every tick once.
func TestThreePodsOneRunPerTick(t *testing.T) {
	const pods, ticks = 3, 10
	t.Run("a lock alone runs a tick three times", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			locks := memory.New(memory.Config{}).Locks()
			var runs, most, inside atomic.Int64
			var all sync.WaitGroup
			for pod := range pods {
				all.Go(func() {
					locker := lock.NewLocker(locks, lock.LockerConfig{})
					<-time.After(time.Duration(pod) * 100 * time.Millisecond)
					for range ticks {
						grant, err := locker.TryAcquire(t.Context(), "tick", lock.Terms{})
						if err == nil {
							most.Store(max(most.Load(), inside.Add(1)))
							<-time.After(5 * time.Millisecond)
							runs.Add(1)
							inside.Add(-1)
							err = locker.Release(t.Context(), grant)
						}
						if err != nil && !errors.Is(err, lock.ErrHeld) {
							t.Error(err)
						}
						<-time.After(10*time.Second - 5*time.Millisecond)
					}
				})
			}
			all.Wait()
			if runs.Load() != pods*ticks || most.Load() != 1 {
				t.Errorf("%d runs, %d concurrently: the trap is not shown", runs.Load(), most.Load())
			}
		})
	})
	t.Run("a schedule runs it once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db := memory.New(memory.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			job := durable.NewJob[struct{}]("tick")
			var runs atomic.Int64
			var all sync.WaitGroup
			for pod := range pods {
				all.Go(func() {
					<-time.After(time.Duration(pod) * 100 * time.Millisecond)
					w := durable.NewWorker(db, durable.WorkerConfig{Name: fmt.Sprintf("pod-%d", pod), PollInterval: time.Second})
					durable.Register(w, job, func(context.Context, *durable.Run[struct{}]) error {
						<-time.After(5 * time.Millisecond)
						runs.Add(1)
						return nil
					})
					durable.AddSchedule(w, "tick", job, struct{}{}, store.Every(10*time.Second))
					if err := w.Run(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			<-time.After(ticks*10*time.Second + 9*time.Second)
			cancel()
			all.Wait()
			if runs.Load() != ticks {
				t.Errorf("%d runs of %d ticks", runs.Load(), ticks)
			}
		})
	})
}
