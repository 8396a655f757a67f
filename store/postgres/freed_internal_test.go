package postgres

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/internal/pgtest"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// TestFreedPlacesAreAnnounced settles runs for whose places others wait. Other processes
// are notified; then every notification has to wait for an hour, and who runs in this
// process hears of it all the same.
func TestFreedPlacesAreAnnounced(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), pgtest.Database(t)
	s, err := Open(ctx, url, Config{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	_, err = s.schema.Migrate(ctx)
	require.NoError(t, err)
	doc := store.Limit{Name: "doc", Kind: store.LimitSemaphore, Max: 1}
	require.NoError(t, s.ChangeLimit(ctx, store.LimitChange{Command: store.SetLimit, Limit: doc, By: "ann"}))
	_, err = s.Enqueue(ctx, limitedRun(), limitedRun(), limitedRun())
	require.NoError(t, err)
	due := store.Signal{Kind: store.RunsDue}

	other, err := Open(ctx, url, Config{})
	require.NoError(t, err)
	t.Cleanup(other.Close)
	heard := listening(t, other)
	require.Eventually(t, func() bool { return slices.Contains(heard(), due) }, time.Minute, time.Millisecond, "it listens")
	settleAdmitted(t, s)
	require.Eventually(t, func() bool { return slices.Contains(heard(), due) }, 10*time.Second, time.Millisecond, "no other process hears of the place")

	s.hints.pace.mu.Lock()
	s.hints.pace.sent = lease.Running() + time.Hour
	s.hints.pace.mu.Unlock()
	here := s.hints.here.Join()
	defer s.hints.here.Part(here)
	settleAdmitted(t, s)
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(here.Take(), func(signal store.Signal) bool {
			return signal.Kind == store.RunsDue && signal.Due == store.Due{Lane: admit.LimitLine(1)}
		})
	}, 10*time.Second, time.Millisecond, "this process does not hear of the place")
}

// TestFreedPlacesReachAnotherProcess has a process with several workers free a place: if those
// come first in the order that was drawn, one of another process looks all the same.
func TestFreedPlacesReachAnotherProcess(t *testing.T) {
	t.Parallel()
	for _, here := range []int{0, 1, 2, 3} {
		var s Store
		s.workers.ids = map[uuid.UUID]int32{}
		for i := range here {
			s.workers.ids[uuid.New()] = int32(i)
		}
		for _, due := range s.forOthers([]store.Due{{Lane: 1}, {Lane: 2}}) {
			require.Equal(t, max(here, 1)+1, due.Wanted(8))
		}
	}
}

// TestFreedPlacesLeaveAWatch frees places again and again while a watch covers what is
// enqueued. They are sent soon, and the enqueues when the watch is over.
func TestFreedPlacesLeaveAWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Store{noNotify: true}
		s.hints.init()
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.sendHints(ctx) })
		here := s.hints.here.Join()
		const gap = 9 * time.Millisecond
		line := []store.LineID{admit.LimitLine(1)}
		sent := 0
		enqueue := func() (announced bool) {
			s.hints.pace.enqueued(lease.Running())
			s.hintDue([]store.Due{{Lane: 1, Runs: 1}})
			s.hintFreed(line, line)
			pass(gap)
			require.False(t, s.hints.freed.any(), "freed places are to be sent soon")
			for _, signal := range here.Take() {
				if signal.Due.Lane == 1 {
					announced = true
					sent++
				}
			}
			return announced
		}
		for range 50 { // until they are known to be frequent
			enqueue()
		}
		for !enqueue() { // until a watch begins
		}
		sent = 0
		for range int(watchFor/gap) - 1 {
			require.False(t, enqueue(), "the watch covers it")
			require.True(t, s.hints.due.any(), "it is to be sent later")
		}
		for range 2 {
			enqueue()
		}
		require.Equal(t, 1, sent, "when the watch is over")
		for range 200 {
			enqueue()
		}
		require.InDelta(t, 200*gap/watchFor, sent, 3)

		for !enqueue() {
		}
		s.hints.due.add(store.Due{Lane: 1, Runs: 1})
		s.hintFreed(line, line)
		pass(gap)
		require.True(t, s.hints.due.any())
		pass(watchFor)
		require.False(t, s.hints.due.any(), "nothing else has the sender look at it")
		end()
		running.Wait()
	})
}

// pass lets time pass in a bubble, and all that is due in it happen.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time of the bubble
	synctest.Wait()
}

// TestTheLastHintsAreSent ends the sender before it looks, and under a watch.
func TestTheLastHintsAreSent(t *testing.T) {
	t.Parallel()
	s := &Store{noNotify: true}
	s.hints.init()
	now := lease.Running()
	s.hints.pace = pace{sent: now, watch: watch{until: now + time.Hour, lanes: map[store.LaneID]store.Due{1: {}}}}
	s.hintDue([]store.Due{{Lane: 1, Runs: 1}})
	ctx, end := context.WithCancel(t.Context())
	end()
	s.sendHints(ctx)
	require.False(t, s.hints.due.any())
}

// listening returns a function that takes what the store has heard.
func listening(t *testing.T, s *Store) func() []store.Signal {
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
func settleAdmitted(t *testing.T, s *Store) {
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

func limitedRun() store.NewRun {
	return store.NewRun{ID: store.NewRunID(), Job: "mail", Queue: store.DefaultQueue, MaxAttempts: 1, Args: []byte(`{}`),
		Limits: []store.LimitUse{{Limit: "doc"}}}
}
