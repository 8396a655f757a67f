package heartbeat_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/store/memory"
)

// faulty is a store of locks that fails, hangs or pauses as scripted.
type faulty struct {
	lock.Locks
	down    atomic.Bool
	renewed atomic.Int64
	asked   atomic.Int64
}

var errDown = errors.New("connection refused")

func (f *faulty) Acquire(ctx context.Context, r lock.Request) (lock.Answer, error) {
	f.asked.Add(1)
	if f.down.Load() {
		return lock.Answer{}, errDown
	}
	return f.Locks.Acquire(ctx, r)
}

func (f *faulty) Renew(ctx context.Context, claims []lease.ClaimID, d time.Duration) ([]lease.ClaimID, error) {
	if f.down.Load() {
		return nil, errDown
	}
	f.renewed.Add(1)
	return f.Locks.Renew(ctx, claims, d)
}

func (f *faulty) Release(ctx context.Context, name string, claim lease.ClaimID) (bool, error) {
	if f.down.Load() {
		return false, errDown
	}
	return f.Locks.Release(ctx, name, claim)
}

// host is one process: a locker and its keeper.
type host struct {
	locker *lock.Locker
	keeper *heartbeat.Keeper
}

// guard makes hosts that share a store, in virtual time.
func guard(t *testing.T, script func(t *testing.T, store *faulty, hosts func(log *slog.Logger) host)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		elapsed := func() time.Duration { return time.Since(began) }
		half := func() float64 { return 0.5 }
		store := &faulty{Locks: memory.New(memory.Config{}).Locks()}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		script(t, store, func(log *slog.Logger) host {
			locker := lock.NewLocker(store, lock.LockerConfig{Elapsed: elapsed, Random: half, Logger: log})
			keeper := heartbeat.New(locker, heartbeat.Config{
				Terms: lease.Terms{}.WithDefaults(), Elapsed: elapsed, Random: half, Logger: slog.New(slog.DiscardHandler),
			})
			running.Go(func() { keeper.Run(ctx) })
			return host{locker, keeper}
		})
		cancel()
		running.Wait()
	})
}

func (h host) guard(ctx context.Context, name string, terms lock.Terms, fn func(ctx context.Context, grant lock.Grant) error) error {
	return lock.Guard(ctx, h.keeper, h.locker, name, terms, fn)
}

func TestGuard_LongRunIsKeptAliveAndFreesTheLock(t *testing.T) {
	guard(t, func(t *testing.T, store *faulty, hosts func(*slog.Logger) host) {
		a, b := hosts(nil), hosts(nil)
		var inside, ran atomic.Int64
		body := func(ctx context.Context, grant lock.Grant) error {
			require.EqualValues(t, 1, inside.Add(1))
			defer inside.Add(-1)
			require.Positive(t, grant.Fence)
			pass(95 * time.Second)
			ran.Add(1)
			return ctx.Err()
		}
		var both sync.WaitGroup
		for _, h := range []host{a, b} {
			both.Go(func() { require.NoError(t, h.guard(t.Context(), "nightly", lock.Terms{Wait: -1}, body)) })
		}
		pass(time.Second)
		require.ErrorIs(t, b.guard(t.Context(), "nightly", lock.Terms{}, body), lock.ErrHeld)
		both.Wait()
		require.EqualValues(t, 2, ran.Load())
		require.GreaterOrEqual(t, store.renewed.Load(), int64(18), "each run was renewed every ten seconds")
		renewed := store.renewed.Load()
		pass(time.Minute)
		require.Equal(t, renewed, store.renewed.Load(), "nothing is renewed after its run")
	})
}

func TestGuard_ReleasesOnPanicAndGoexit(t *testing.T) {
	guard(t, func(t *testing.T, _ *faulty, hosts func(*slog.Logger) host) {
		h := hosts(nil)
		require.PanicsWithValue(t, "boom", func() {
			_ = h.guard(t.Context(), "nightly", lock.Terms{}, func(context.Context, lock.Grant) error { panic("boom") })
		})
		var gone sync.WaitGroup
		gone.Go(func() {
			_ = h.guard(t.Context(), "nightly", lock.Terms{}, func(context.Context, lock.Grant) error { runtime.Goexit(); return nil })
		})
		gone.Wait()
		require.Zero(t, h.keeper.Held())
		require.NoError(t, h.guard(t.Context(), "nightly", lock.Terms{}, func(context.Context, lock.Grant) error { return nil }))
	})
}

func TestGuard_ReleasesAfterItsContextWasCancelled(t *testing.T) {
	guard(t, func(t *testing.T, _ *faulty, hosts func(*slog.Logger) host) {
		h := hosts(nil)
		ctx, cancel := context.WithCancel(t.Context())
		err := h.guard(ctx, "nightly", lock.Terms{}, func(ctx context.Context, _ lock.Grant) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, context.Canceled)
		_, err = h.locker.TryAcquire(t.Context(), "nightly", lock.Terms{})
		require.NoError(t, err, "released immediately, not at its expiry")
	})
}

func TestGuard_LossCancelsBeforeTheStoreGrantsToAnother(t *testing.T) {
	guard(t, func(t *testing.T, store *faulty, hosts func(*slog.Logger) host) {
		a := hosts(nil)
		began := time.Now()
		var stopped time.Duration
		err := a.guard(t.Context(), "nightly", lock.Terms{}, func(ctx context.Context, _ lock.Grant) error {
			store.down.Store(true)
			<-ctx.Done()
			stopped = time.Since(began)
			require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
			other := lock.Request{Name: "nightly", Slots: 1, Claim: lease.NewClaimID(), Duration: time.Minute}
			_, err := store.Locks.Acquire(ctx, other)
			require.Error(t, err)
			answer, err := store.Locks.Acquire(t.Context(), other)
			require.NoError(t, err)
			require.False(t, answer.Granted, "the store still protects a holder that has just stopped")
			pass(time.Until(began.Add(30 * time.Second)))
			answer, err = store.Locks.Acquire(t.Context(), other)
			require.NoError(t, err)
			require.True(t, answer.Granted && answer.TookOver)
			store.down.Store(false)
			return nil
		})
		require.ErrorIs(t, err, lease.ErrLost, "the release found another's lock and left it alone")
		require.Less(t, stopped, 30*time.Second)
	})
}

func TestGuard_ForcedReleaseStopsTheHolderAtItsNextBeat(t *testing.T) {
	guard(t, func(t *testing.T, store *faulty, hosts func(*slog.Logger) host) {
		a := hosts(nil)
		began := time.Now()
		err := a.guard(t.Context(), "nightly", lock.Terms{}, func(ctx context.Context, _ lock.Grant) error {
			released, err := store.ForceRelease(t.Context(), lock.Force{Name: "nightly", By: "ada"})
			require.NoError(t, err)
			require.True(t, released)
			<-ctx.Done()
			return nil
		})
		require.ErrorIs(t, err, lease.ErrLost)
		require.LessOrEqual(t, time.Since(began), 11*time.Second)
	})
}

func TestGuard_TimeoutAndTerms(t *testing.T) {
	guard(t, func(t *testing.T, _ *faulty, hosts func(*slog.Logger) host) {
		h := hosts(nil)
		err := h.guard(t.Context(), "nightly", lock.Terms{Timeout: 5 * time.Second}, func(ctx context.Context, _ lock.Grant) error {
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		never := func(context.Context, lock.Grant) error { t.Error("it ran"); return nil }
		require.ErrorIs(t, h.guard(t.Context(), "nightly", lock.Terms{Timeout: 30 * time.Second}, never), lock.ErrInvalid)
		require.ErrorIs(t, h.guard(t.Context(), "nightly", lock.Terms{Terms: lease.Terms{Duration: time.Minute}}, never), lock.ErrInvalid)
	})
}

func TestGuard_RunLocalOutlivesAnOutageAndReturns(t *testing.T) {
	guard(t, func(t *testing.T, store *faulty, hosts func(*slog.Logger) host) {
		h := hosts(nil)
		terms := lock.Terms{Policy: lock.RunLocal}
		store.down.Store(true)
		err := h.guard(t.Context(), "tick", terms, func(ctx context.Context, grant lock.Grant) error {
			require.True(t, grant.Local)
			require.Zero(t, grant.Fence)
			require.ErrorIs(t, h.guard(ctx, "tick", terms, nil), lock.ErrHeld, "the local cap holds")
			pass(2 * time.Minute) // longer than any lease: no one takes it away
			return ctx.Err()
		})
		require.NoError(t, err)
		store.down.Store(false)
		pass(2 * time.Second)
		require.NoError(t, h.guard(t.Context(), "tick", terms, func(_ context.Context, grant lock.Grant) error {
			require.False(t, grant.Local)
			return nil
		}))
		require.Zero(t, h.locker.Degraded())
	})
}

func TestGuard_OldHolderIsWarnedAbout(t *testing.T) {
	guard(t, func(t *testing.T, _ *faulty, hosts func(*slog.Logger) host) {
		var mu sync.Mutex
		var text strings.Builder
		h := hosts(slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return text.Write(p)
		}), nil)))
		require.NoError(t, h.guard(t.Context(), "nightly", lock.Terms{Longest: time.Minute}, func(context.Context, lock.Grant) error {
			pass(85 * time.Second)
			mu.Lock()
			require.NotContains(t, text.String(), "held longer")
			mu.Unlock()
			pass(60 * time.Second)
			return nil
		}))
		require.Equal(t, 1, strings.Count(text.String(), "lock held longer than expected"))
	})
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
