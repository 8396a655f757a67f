package limit_test

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/limit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
	"github.com/durable-worker/durable-worker/store/postgres"
	"github.com/durable-worker/durable-worker/store/sqlite"
)

func stores(t *testing.T) map[string]func() store.Store {
	t.Helper()
	return map[string]func() store.Store{
		"memory": func() store.Store { return memory.New(memory.Config{}) },
		"sqlite": func() store.Store {
			db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "durable.db"), sqlite.Config{})
			require.NoError(t, err)
			t.Cleanup(db.Close)
			_, err = db.Migrate(t.Context())
			require.NoError(t, err)
			return db
		},
		"postgres": func() store.Store {
			db, err := postgres.Open(t.Context(), pgtest.Database(t), postgres.Config{MaxConns: 4})
			require.NoError(t, err)
			t.Cleanup(db.Close)
			_, err = db.Migrate(t.Context())
			require.NoError(t, err)
			return db
		},
	}
}

// Runs and code outside of runs share one mutex, and neither is in the other's way for
// good. Limiters have stores of their own in production; here they share one.
func TestRunsAndLimitersShareAKey(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			db, mutex := open(), durable.NewLimit("mutex", durable.Mutex())
			var inside, done atomic.Int64
			work := func(context.Context) error {
				if inside.Add(1) > 1 {
					t.Error("two have the mutex")
				}
				defer inside.Add(-1)
				time.Sleep(time.Millisecond) //nolint:forbidigo // so that others would overlap
				done.Add(1)
				return nil
			}
			job := durable.NewJob[int]("job", durable.Limited(mutex))
			worker := durable.NewWorker(db, durable.WorkerConfig{Process: new(durable.Process)})
			durable.Register(worker, job, func(ctx context.Context, _ *durable.Run[int]) error { return work(ctx) })
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() { _ = worker.Run(ctx) })
			defer all.Wait()
			defer stop()
			var calls sync.WaitGroup
			for range 3 {
				l := limit.New(db, mutex, limit.Config{})
				calls.Go(func() {
					for range 4 {
						if err := l.Do(t.Context(), "", work); err != nil {
							t.Error(err)
						}
					}
				})
			}
			calls.Wait() // from the first call on the limit is declared
			for i := range 10 {
				_, err := job.Enqueue(ctx, durable.NewClient(db), i)
				require.NoError(t, err)
			}
			for range 3 {
				require.NoError(t, limit.New(db, mutex, limit.Config{}).Do(t.Context(), "", work))
			}
			require.Eventually(t, func() bool { return done.Load() == 25 }, time.Minute, time.Millisecond)
			var permit *limit.Permit
			require.Eventually(t, func() (got bool) {
				p, err := limit.New(db, mutex, limit.Config{}).TryAcquire(t.Context(), "", 1)
				permit = p
				return err == nil
			}, time.Minute, time.Millisecond, "the last run has given its place back")
			require.NoError(t, permit.Release(t.Context()))
		})
	}
}

// A handler that is refused by its service slows its own key down, and no other.
func TestAHandlerPenalizesItsKey(t *testing.T) {
	for name, open := range stores(t) {
		t.Run(name, func(t *testing.T) {
			db, tenant := open(), durable.NewLimit("tenant", durable.Semaphore(5))
			type args struct {
				Tenant string `json:"tenant"`
			}
			answers := make(chan error, 10)
			other := durable.NewLimit("other", durable.Mutex())
			job := durable.NewJob[args]("job", durable.Limited(tenant, durable.KeyOf("{tenant}")))
			worker := durable.NewWorker(db, durable.WorkerConfig{Process: new(durable.Process)})
			durable.Register(worker, job, func(ctx context.Context, run *durable.Run[args]) error {
				if run.Args.Tenant != "fast" {
					answers <- run.Penalize(ctx, other, time.Hour)
					answers <- run.Penalize(ctx, tenant, 0)
					answers <- run.Penalize(ctx, tenant, time.Hour)
				}
				return nil
			})
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() { _ = worker.Run(ctx) })
			defer all.Wait()
			defer stop()
			client := durable.NewClient(db)
			l := limit.New(db, tenant, limit.Config{})
			require.NoError(t, l.Do(ctx, "fast", func(context.Context) error { return nil })) // declares the limit
			_, err := job.Enqueue(ctx, client, args{"slow"})
			require.NoError(t, err)
			require.ErrorIs(t, <-answers, durable.ErrInvalid)
			require.NoError(t, <-answers)
			require.NoError(t, <-answers)
			_, err = l.TryAcquire(ctx, "slow", 1)
			require.ErrorIs(t, err, limit.ErrFull)
			slow, err := job.Enqueue(ctx, client, args{"Slow"})
			require.NoError(t, err)
			fast, err := job.Enqueue(ctx, client, args{"fast"})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				record, err := db.Run(ctx, fast.ID)
				return err == nil && record.State == durable.Succeeded
			}, time.Minute, time.Millisecond)
			record, err := db.Run(ctx, slow.ID)
			require.NoError(t, err)
			require.Equal(t, durable.Pending, record.State)
			require.NoError(t, db.ChangeLimit(ctx, store.LimitChange{Command: store.LiftPenalty, Limit: store.Limit{Name: "tenant"}, Key: "slow", By: "ann"}))
			require.ErrorIs(t, <-answers, durable.ErrInvalid, "it executes now")
		})
	}
}
