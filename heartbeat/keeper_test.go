package heartbeat_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/heartbeat"
	"github.com/durable-worker/durable-worker/lease"
)

// scripted is a Renewer that answers as scripted.
type scripted struct {
	mu    sync.Mutex
	gone  map[lease.ClaimID]bool
	fail  error
	hang  bool
	calls [][]lease.ClaimID
}

func (s *scripted) Renew(ctx context.Context, claims []lease.ClaimID, _ time.Duration) ([]lease.ClaimID, error) {
	s.mu.Lock()
	s.calls = append(s.calls, claims)
	fail, hang := s.fail, s.hang
	var renewed []lease.ClaimID
	for _, c := range claims {
		if !s.gone[c] {
			renewed = append(renewed, c)
		}
	}
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return renewed, fail
}

func (s *scripted) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// keep runs a keeper in virtual time.
func keep(t *testing.T, script func(t *testing.T, k *heartbeat.Keeper, r *scripted)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := &scripted{gone: map[lease.ClaimID]bool{}}
		k := heartbeat.New(r, heartbeat.Config{
			Terms: lease.Terms{}.WithDefaults(), Elapsed: func() time.Duration { return time.Since(began) },
			Random: func() float64 { return 0.5 }, Logger: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { k.Run(ctx) })
		script(t, k, r)
		cancel()
		running.Wait()
	})
}

func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time of the bubble
	synctest.Wait()
}

func TestKeeper_RenewsAllLeasesInOneCall(t *testing.T) {
	keep(t, func(t *testing.T, k *heartbeat.Keeper, r *scripted) {
		var holds []*heartbeat.Hold
		for range 50 {
			_, h := k.Hold(t.Context(), lease.Lease{Claim: lease.NewClaimID()})
			holds = append(holds, h)
		}
		pass(100 * time.Second)
		require.Len(t, r.calls, 10, "one call each third of the duration")
		for _, call := range r.calls {
			require.Len(t, call, 50)
		}
		for _, h := range holds {
			require.True(t, h.Valid())
			h.Release()
		}
		pass(time.Minute)
		require.Len(t, r.calls, 10, "nothing held, nothing renewed")
		require.Zero(t, k.Held())
	})
}

func TestKeeper_LostLeaseEndsItsContextAlone(t *testing.T) {
	keep(t, func(t *testing.T, k *heartbeat.Keeper, r *scripted) {
		lost, stays := lease.NewClaimID(), lease.NewClaimID()
		lostCtx, lostHold := k.Hold(t.Context(), lease.Lease{Claim: lost})
		stayCtx, stayHold := k.Hold(t.Context(), lease.Lease{Claim: stays})
		r.change(func() { r.gone[lost] = true })
		pass(11 * time.Second)
		require.ErrorIs(t, context.Cause(lostCtx), lease.ErrLost)
		require.False(t, lostHold.Valid())
		require.NoError(t, stayCtx.Err())
		require.True(t, stayHold.Valid())
		lostHold.Release()
		stayHold.Release()
		require.NotErrorIs(t, context.Cause(stayCtx), lease.ErrLost)
	})
}

func TestKeeper_WhatTheHolderEndsIsNotLost(t *testing.T) {
	keep(t, func(t *testing.T, k *heartbeat.Keeper, r *scripted) {
		claim := lease.NewClaimID()
		ctx, hold := k.Hold(t.Context(), lease.Lease{Claim: claim})
		hold.Ending()
		r.change(func() { r.gone[claim] = true })
		pass(11 * time.Second)
		require.NoError(t, ctx.Err())
		hold.Release()
		require.NotErrorIs(t, context.Cause(ctx), lease.ErrLost)
	})
}

func TestKeeper_ErrorsAreRetriedAndThenTheLeaseIsLost(t *testing.T) {
	keep(t, func(t *testing.T, k *heartbeat.Keeper, r *scripted) {
		ctx, hold := k.Hold(t.Context(), lease.Lease{Claim: lease.NewClaimID()})
		defer hold.Release()
		r.change(func() { r.fail = errors.New("down") })
		pass(15 * time.Second)
		r.change(func() { r.fail = nil })
		pass(30 * time.Second)
		require.NoError(t, ctx.Err(), "an outage shorter than the lease is lived through")
		r.change(func() { r.fail = errors.New("down") })
		pass(30 * time.Second)
		require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
	})
}

func TestKeeper_HangingCallDoesNotHideTheDeadline(t *testing.T) {
	keep(t, func(t *testing.T, k *heartbeat.Keeper, r *scripted) {
		began := time.Now()
		ctx, hold := k.Hold(t.Context(), lease.Lease{Claim: lease.NewClaimID()})
		defer hold.Release()
		r.change(func() { r.hang = true })
		<-ctx.Done()
		require.Equal(t, 26700*time.Millisecond, time.Since(began))
		synctest.Wait()
		require.GreaterOrEqual(t, len(r.calls), 2, "each call is bounded, so that there is a second try")
	})
}

func TestKeeper_HoldsThatComeAndGoNeverStopTheBeat(t *testing.T) {
	keep(t, func(t *testing.T, k *heartbeat.Keeper, r *scripted) {
		ctx, long := k.Hold(t.Context(), lease.Lease{Claim: lease.NewClaimID()})
		defer long.Release()
		began := time.Now()
		for time.Since(began) < 2*time.Minute { // one of them falls on the very instant of a beat
			_, short := k.Hold(t.Context(), lease.Lease{Claim: lease.NewClaimID(), Asked: time.Since(began)})
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // virtual time; no Wait, so that either may come first
			short.Release()
		}
		synctest.Wait()
		require.NoError(t, ctx.Err())
		require.GreaterOrEqual(t, len(r.calls), 11)
	})
}

// The machine was suspended: the monotonic clock has continued, and timers have not.
func TestKeeper_ASuspendedMachineIsNoticedWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var asleep atomic.Int64
		k := heartbeat.New(&scripted{}, heartbeat.Config{
			Terms:   lease.Terms{}.WithDefaults(),
			Elapsed: func() time.Duration { return time.Since(began) + time.Duration(asleep.Load()) },
			Random:  func() float64 { return 0.5 }, Logger: slog.New(slog.DiscardHandler),
		})
		running, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { k.Run(running) })
		ctx, hold := k.Hold(t.Context(), lease.Lease{Claim: lease.NewClaimID()})
		pass(1500 * time.Millisecond)
		asleep.Store(int64(time.Hour))
		require.False(t, hold.Valid())
		pass(time.Second)
		require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
		hold.Release()
		stop()
		ended.Wait()
	})
}

func TestKeeper_WhatAPartOfTheStoreDoesNotAnswerIsTriedAgain(t *testing.T) {
	keep(t, func(t *testing.T, k *heartbeat.Keeper, r *scripted) {
		answered, away := lease.NewClaimID(), lease.NewClaimID()
		stayCtx, stays := k.Hold(t.Context(), lease.Lease{Claim: answered})
		awayCtx, goes := k.Hold(t.Context(), lease.Lease{Claim: away})
		r.change(func() {
			r.gone[away] = true
			r.fail = fmt.Errorf("renew: %w", &lease.UnknownError{Claims: []lease.ClaimID{away}, Err: errors.New("down")})
		})
		pass(20 * time.Second)
		require.True(t, goes.Valid())
		pass(2 * time.Minute)
		require.NoError(t, stayCtx.Err(), "what is answered goes on")
		require.ErrorIs(t, context.Cause(awayCtx), lease.ErrLost, "the rest has its deadline")
		stays.Release()
		goes.Release()
	})
}
