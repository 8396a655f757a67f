package wake

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// TestFreedPlacesWakeThisProcess frees places while notifications are held back for an hour: who
// runs in this process is woken all the same, and immediately.
func TestFreedPlacesWakeThisProcess(t *testing.T) {
	t.Parallel()
	w := New(nil, someWorkers(1), false)
	w.hints.pace.sent = lease.Running() + time.Hour
	here := w.hints.here.Join()
	w.HintFreed([]store.LineID{7, 7}, []store.LineID{7})
	require.Equal(t, []store.Signal{{Kind: store.RunsDue, Due: store.Due{Lane: 7}}}, here.Take())
}

// TestFreedPlacesReachAnotherProcess has a process with several workers free a place: if those
// come first in the order that was drawn, one of another process looks all the same.
func TestFreedPlacesReachAnotherProcess(t *testing.T) {
	t.Parallel()
	for _, here := range []int{0, 1, 2, 3} {
		s := New(nil, someWorkers(here), true)
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
		s := New(nil, someWorkers(0), true)
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.sendHints(ctx) })
		here := s.hints.here.Join()
		const gap = 9 * time.Millisecond
		line := []store.LineID{admit.LimitLine(1)}
		sent := 0
		enqueue := func() (announced bool) {
			s.hints.pace.enqueued(lease.Running())
			s.HintDue([]store.Due{{Lane: 1, Runs: 1}})
			s.HintFreed(line, line)
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
		s.HintFreed(line, line)
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
	s := New(nil, someWorkers(0), true)
	now := lease.Running()
	s.hints.pace = pace{sent: now, watch: watch{until: now + time.Hour, lanes: map[store.LaneID]store.Due{1: {}}}}
	s.HintDue([]store.Due{{Lane: 1, Runs: 1}})
	ctx, end := context.WithCancel(t.Context())
	end()
	s.sendHints(ctx)
	require.False(t, s.hints.due.any())
}

// someWorkers is a process with so many workers, which knows no names.
type someWorkers int

// Workers returns how many there are.
func (w someWorkers) Workers() int { return int(w) }

// NamesOf knows none.
func (someWorkers) NamesOf(store.LaneID) uint64 { return 0 }
