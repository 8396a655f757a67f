package postgres_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres"
)

// TestFreedPlacesAreAnnounced settles runs for whose places others wait. Other processes
// are notified.
func TestFreedPlacesAreAnnounced(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), pgtest.Database(t)
	s, err := postgres.Open(ctx, url, postgres.Config{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	_, err = s.Migrate(ctx)
	require.NoError(t, err)
	doc := store.Limit{Name: "doc", Kind: store.LimitSemaphore, Max: 1}
	require.NoError(t, s.ChangeLimit(ctx, store.LimitChange{Command: store.SetLimit, Limit: doc, By: "ann"}))
	_, err = s.Enqueue(ctx, docRun(), docRun(), docRun())
	require.NoError(t, err)
	due := store.Signal{Kind: store.RunsDue}

	other, err := postgres.Open(ctx, url, postgres.Config{})
	require.NoError(t, err)
	t.Cleanup(other.Close)
	heard := signalsOf(t, other)
	require.Eventually(t, func() bool { return slices.Contains(heard(), due) }, time.Minute, time.Millisecond, "it listens")
	settleAdmitted(t, s)
	require.Eventually(t, func() bool { return slices.Contains(heard(), due) }, 10*time.Second, time.Millisecond, "no other process hears of the place")
}

// signalsOf returns a function that takes what the store has heard.
func signalsOf(t *testing.T, s *postgres.Store) func() []store.Signal {
	t.Helper()
	var mu sync.Mutex
	var all []store.Signal
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_ = s.Listen(ctx, func(signal store.Signal) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, signal)
		})
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return func() []store.Signal {
		mu.Lock()
		defer mu.Unlock()
		taken := all
		all = nil
		return taken
	}
}

// settleAdmitted admits the one run for which there is a place, and settles it.
func settleAdmitted(t *testing.T, s *postgres.Store) {
	t.Helper()
	heads, err := s.Heads(t.Context(), store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
	require.NoError(t, err)
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: store.WorkerID{Name: "w", Instance: uuid.New()}, Duration: time.Minute, Limit: 10}
	for _, head := range heads {
		if head.Line > 0 {
			request.Admissions = append(request.Admissions, store.Admission{Line: head.Line, Take: 10})
		} else if head.Lane > 0 {
			request.Lanes = append(request.Lanes, head.Lane)
		}
	}
	runs, err := s.Claim(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	_, err = s.Settle(t.Context(), []store.Settlement{{Claim: request.Claim, Worker: request.Worker, Limited: true, Last: true, Claimed: 1,
		Runs: []store.Settled{{ID: runs[0].ID, Outcome: store.Outcome{Kind: store.Success}}}}})
	require.NoError(t, err)
}

func docRun() store.NewRun {
	return store.NewRun{ID: store.NewRunID(), Job: "mail", Queue: store.DefaultQueue, MaxAttempts: 1, Args: []byte(`{}`),
		Limits: []store.LimitUse{{Limit: "doc"}}}
}
