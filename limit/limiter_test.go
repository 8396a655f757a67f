package limit_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/limit"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/memory"
)

var (
	errDown  = errors.New("connection refused")
	api      = durable.NewLimit("api", durable.TokenBucket(2, time.Second, 2))
	exports  = durable.NewLimit("exports", durable.Semaphore(2))
	accounts = durable.NewLimit("accounts", durable.DynamicWindow(20, time.Hour, 60, 2, 20))
)

// faulty is a store that is down, or loses its answers, as its fields say.
type faulty struct {
	*memory.Store
	down, deaf atomic.Bool
	asked      atomic.Int64
	declared   atomic.Int64
}

func (f *faulty) Declare(ctx context.Context, declaration store.Declaration) error {
	f.declared.Add(1)
	return f.Store.Declare(ctx, declaration)
}

func (f *faulty) UseLimit(ctx context.Context, request store.LimitRequest) (store.LimitGrant, error) {
	f.asked.Add(1)
	if f.down.Load() {
		return store.LimitGrant{}, errDown
	}
	grant, err := f.Store.UseLimit(ctx, request)
	if f.deaf.Load() && request.Usage != store.UsageGive {
		return store.LimitGrant{}, errDown
	}
	return grant, err
}

// inVirtualTime runs a test on a memory store, with Limiters of processes of their own.
func inVirtualTime(t *testing.T, script func(t *testing.T, db *faulty, limiter func(durable.Limit) *limit.Limiter)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, began := &faulty{Store: memory.New(memory.Config{})}, time.Now()
		script(t, db, func(of durable.Limit) *limit.Limiter {
			return limit.New(db, of, limit.Config{Elapsed: func() time.Duration { return time.Since(began) }, Random: func() float64 { return 0.5 }})
		})
	})
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time of the bubble
}

func TestTakeSaysWhenToTryAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *faulty, limiter func(durable.Limit) *limit.Limiter) {
		l := limiter(api)
		require.NoError(t, l.Take(t.Context(), "", 2))
		err := l.Take(t.Context(), "", 1)
		require.ErrorIs(t, err, limit.ErrFull)
		require.EqualError(t, err, `limit "api": limit is full: retry in 500ms`)
		require.NoError(t, l.Take(t.Context(), "another key", 1))
		require.EqualError(t, errors.Join(l.Take(t.Context(), "Another key", 2)), `limit "api", key "Another key": limit is full: retry in 500ms`)
		var full *limit.FullError
		require.ErrorAs(t, limiter(api).Take(t.Context(), "", 1), &full, "another process")
		pass(full.RetryIn)
		require.NoError(t, l.Take(t.Context(), "", 1))
	})
}

func TestWaitersOfAProcessAreServedInOrder(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, db *faulty, limiter func(durable.Limit) *limit.Limiter) {
		l, began := limiter(api), time.Now()
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if err := l.Wait(t.Context(), "k", 1); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			synctest.Wait()
		}
		require.NoError(t, l.Take(t.Context(), "other", 1), "a key whose calls wait holds up no other")
		all.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, order)
		require.Equal(t, 4*time.Second, time.Since(began), "two together, then two a second")
		require.LessOrEqual(t, db.asked.Load(), int64(25), "one call asks for all")
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *faulty, limiter func(durable.Limit) *limit.Limiter) {
		l := limiter(durable.NewLimit("hourly", durable.FixedWindow(1, time.Hour)))
		require.NoError(t, l.Wait(t.Context(), "", 1))
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, l.Wait(short, "", 1), limit.ErrFull)
		require.Zero(t, time.Since(began), "in vain: it is not waited for")
		gone := errors.New("gone")
		ctx, end := context.WithCancelCause(t.Context())
		var both sync.WaitGroup
		for range 2 { // the second one waits for the first
			both.Go(func() {
				if err := l.Wait(ctx, "", 1); !errors.Is(err, gone) || err.Error() != `wait for limit "hourly": gone` {
					t.Errorf("the wait ended with %v", err)
				}
			})
		}
		pass(time.Second)
		end(gone)
		both.Wait()
	})
}

func TestChargeMakesOthersWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *faulty, limiter func(durable.Limit) *limit.Limiter) {
		l, began := limiter(api), time.Now()
		require.NoError(t, l.Charge(t.Context(), "", 10))
		require.NoError(t, l.Wait(t.Context(), "", 1))
		require.Equal(t, 1500*time.Millisecond, time.Since(began), "a period, less what was free")
	})
}

func TestPenaltyStopsAKeyForATime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, db *faulty, limiter func(durable.Limit) *limit.Limiter) {
		l, began := limiter(api), time.Now()
		require.NoError(t, l.Penalize(t.Context(), "slow", 0))
		require.Zero(t, db.asked.Load())
		require.NoError(t, l.Penalize(t.Context(), "slow", time.Minute))
		require.NoError(t, l.Penalize(t.Context(), "slow", time.Second), "the later end counts")
		require.NoError(t, l.Take(t.Context(), "other", 1))
		require.NoError(t, l.Wait(t.Context(), "slow", 1))
		require.Equal(t, time.Minute, time.Since(began))
		require.NoError(t, l.Penalize(t.Context(), "slow", time.Hour))
		require.NoError(t, db.ChangeLimit(t.Context(), store.LimitChange{Command: store.LiftPenalty, Limit: store.Limit{Name: "api"}, Key: "slow", By: "ann"}))
		require.NoError(t, l.Take(t.Context(), "slow", 1))
	})
}

func TestADynamicWindowIsSharedOut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *faulty, limiter func(durable.Limit) *limit.Limiter) {
		l := limiter(accounts)
		require.ErrorIs(t, l.Take(t.Context(), "", 1), store.ErrInvalid)
		require.NoError(t, l.Take(t.Context(), "a", 1))
		require.NoError(t, l.Take(t.Context(), "b", 10))
		require.ErrorIs(t, l.Take(t.Context(), "b", 1), limit.ErrFull)
		require.NoError(t, l.Take(t.Context(), "a", 9))
	})
}

func TestALimitIsDeclaredByItsFirstUse(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, db *faulty, limiter func(durable.Limit) *limit.Limiter) {
		l := limiter(exports)
		permit, err := l.TryAcquire(t.Context(), "", 1)
		require.NoError(t, err)
		infos, err := db.ListLimits(t.Context(), store.LimitFilter{})
		require.NoError(t, err)
		require.Len(t, infos, 1)
		require.NotNil(t, infos[0].DeclaredAt)
		require.EqualValues(t, 1, infos[0].InUse.N)
		require.NoError(t, permit.Release(t.Context()))
		workers, err := db.Workers(t.Context())
		require.NoError(t, err)
		require.Empty(t, workers, "a Limiter is no worker")

		change := store.LimitChange{Command: store.DeleteLimit, Limit: store.Limit{Name: "exports"}, By: "ann"}
		require.NoError(t, db.ChangeLimit(t.Context(), change))
		for range 5 {
			_, err := l.TryAcquire(t.Context(), "", 1)
			require.NoError(t, err, "an operator has deleted it: it admits everything")
		}
		require.EqualValues(t, 2, db.declared.Load(), "a deleted limit is not declared at each call")
		pass(2 * time.Minute)
		require.NoError(t, l.Do(t.Context(), "", func(context.Context) error { return nil }))
		require.EqualValues(t, 3, db.declared.Load(), "a limit that is lost and not deleted would come back")
		require.ErrorIs(t, limiter(durable.NewLimit("exports", durable.FixedWindow(1, time.Hour))).Charge(t.Context(), "", 1), store.ErrConflict, "a limit keeps its kind")
	})
}

func TestPermitsEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *faulty, limiter func(durable.Limit) *limit.Limiter) {
		l := limiter(exports)
		one, err := l.TryAcquire(t.Context(), "", 1)
		require.NoError(t, err)
		_, err = l.TryAcquire(t.Context(), "", 2)
		require.ErrorIs(t, err, limit.ErrFull)
		two, err := l.TryAcquire(t.Context(), "", 1)
		require.NoError(t, err)
		pass(20 * time.Second)
		require.NoError(t, one.Extend(t.Context()))
		pass(11 * time.Second)
		require.ErrorIs(t, two.Extend(t.Context()), lease.ErrLost)
		three, err := l.TryAcquire(t.Context(), "", 1)
		require.NoError(t, err)
		require.ErrorIs(t, two.Release(t.Context()), lease.ErrLost)
		require.NoError(t, one.Release(t.Context()))
		require.ErrorIs(t, one.Release(t.Context()), lease.ErrLost)
		require.NoError(t, three.Release(t.Context()))
	})
}

func TestDoKeepsAndGivesBackItsPlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, db *faulty, limiter func(durable.Limit) *limit.Limiter) {
		var inside, most atomic.Int64
		var all sync.WaitGroup
		for range 6 {
			l := limiter(exports)
			all.Go(func() {
				err := l.Do(t.Context(), "k", func(ctx context.Context) error {
					most.Store(max(most.Load(), inside.Add(1)))
					defer inside.Add(-1)
					pass(2 * time.Minute) // much longer than a permit lasts
					return ctx.Err()
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 2, most.Load())
		l, boom := limiter(exports), errors.New("boom")
		require.ErrorIs(t, l.Do(t.Context(), "k", func(context.Context) error { return boom }), boom)
		require.Panics(t, func() { _ = l.Do(t.Context(), "k", func(context.Context) error { panic(boom) }) })
		gate, err := db.Gate(t.Context(), "exports", "k")
		require.NoError(t, err)
		require.Zero(t, gate.InUse)
	})
}

func TestDoEndsBeforeAnotherHasItsPlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, db *faulty, limiter func(durable.Limit) *limit.Limiter) {
		mutex := durable.NewLimit("mutex", durable.Mutex())
		began := time.Now()
		var ended time.Duration
		err := limiter(mutex).Do(t.Context(), "", func(ctx context.Context) error {
			db.down.Store(true)
			<-ctx.Done()
			ended = time.Since(began)
			require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
			pass(time.Minute)
			db.down.Store(false)
			return nil
		})
		require.ErrorIs(t, err, lease.ErrLost, "it was given to another, or could have been")
		require.Less(t, ended, 30*time.Second)
	})
}

func TestALostAnswerTakesNoPlace(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, db *faulty, limiter func(durable.Limit) *limit.Limiter) {
		l := limiter(exports)
		require.NoError(t, l.Do(t.Context(), "", func(context.Context) error { return nil }))
		db.deaf.Store(true)
		_, err := l.TryAcquire(t.Context(), "", 1)
		require.ErrorIs(t, err, errDown)
		db.deaf.Store(false)
		gate, err := db.Gate(t.Context(), "exports", "")
		require.NoError(t, err)
		require.Zero(t, gate.InUse)
	})
}

func TestWhatDoesNotGoTogetherIsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, db *faulty, limiter func(durable.Limit) *limit.Limiter) {
		for name, call := range map[string]func() error{
			"starts of a semaphore":   func() error { return limiter(exports).Take(t.Context(), "", 1) },
			"places of a rate":        func() error { _, err := limiter(api).TryAcquire(t.Context(), "", 1); return err },
			"fewer than none":         func() error { return limiter(api).Take(t.Context(), "", -1) },
			"none":                    func() error { return limiter(api).Charge(t.Context(), "", 0) },
			"no places":               func() error { _, err := limiter(exports).TryAcquire(t.Context(), "", 0); return err },
			"more than there are":     func() error { return limiter(api).Wait(t.Context(), "", 3) },
			"a key that is no text":   func() error { return limiter(api).Take(t.Context(), "a\x00", 1) },
			"a penalty without end":   func() error { return limiter(api).Penalize(t.Context(), "", 2*store.MaxDelay) },
			"a limit that is no rule": func() error { return limiter(durable.NewLimit("x", durable.Semaphore(0))).Take(t.Context(), "", 1) },
			"a limit without a name":  func() error { return limiter(durable.NewLimit("", durable.Mutex())).Take(t.Context(), "", 1) },
		} {
			require.ErrorIs(t, call(), store.ErrInvalid, name)
		}
		require.Panics(t, func() { limit.New(db, api, limit.Config{Terms: lease.Terms{Duration: time.Millisecond}}) })
	})
}

func TestAPlaceThatIsGivenBackIsTakenSoon(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *faulty, limiter func(durable.Limit) *limit.Limiter) {
		mutex := durable.NewLimit("mutex", durable.Mutex())
		held, err := limiter(mutex).TryAcquire(t.Context(), "", 1)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // less than a permit lasts
		defer cancel()
		var both sync.WaitGroup
		both.Go(func() {
			began := time.Now()
			permit, err := limiter(mutex).Acquire(ctx, "", 1)
			if err != nil {
				t.Error(err)
				return
			}
			if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
				t.Errorf("it was acquired after %v", took)
			}
			if err := permit.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
		pass(3 * time.Second)
		require.NoError(t, held.Release(t.Context()))
		both.Wait()
	})
}
