package observe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lock"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

var mail = store.RunInfo{Job: "mail", Queue: "default"}

// execute has an attempt begin and end.
func execute(h observe.Hooks, run store.RunInfo) {
	_, ended := h.Execute(context.Background(), observe.ExecuteStart{Run: run})
	ended(observe.ExecuteEnd{})
}

func TestATallyAddsUpWhatIsDone(t *testing.T) {
	t.Parallel()
	tally := observe.NewTally()
	h := tally.Hooks()
	runs := []store.NewRun{{Job: "mail", Queue: "default"}, {Job: "mail", Queue: "default"}}
	for _, err := range []error{nil, errors.New("refused")} {
		_, enqueued := h.Enqueue(t.Context(), observe.EnqueueStart{Runs: runs})
		enqueued(observe.EnqueueEnd{Err: err})
	}
	late := mail
	late.DueAt = time.Now().Add(-time.Hour)
	execute(h, late)
	early := mail
	early.DueAt = time.Now().Add(time.Hour) // this machine's clock is behind
	execute(h, early)
	for _, kind := range store.SettledKinds() {
		for range kind {
			h.RunSettled(observe.RunVerdict{Run: mail, Outcome: kind, Verdict: store.Applied})
		}
	}
	h.RunSettled(observe.RunVerdict{Run: mail, Outcome: store.Success, Verdict: store.AlreadyApplied})
	h.RunSettled(observe.RunVerdict{Run: mail, Outcome: store.Success, Verdict: store.Rejected})
	h.RunLost(observe.RunLoss{Kind: observe.WorkerCrashed, Job: "mail", Queue: "default"})
	h.RunLost(observe.RunLoss{Kind: observe.LeaseLost, Job: "mail", Queue: "default"})

	totals := tally.Totals()
	require.Len(t, totals.Lanes, 1)
	lane := totals.Lanes[0]
	require.Equal(t, []any{"default", "mail", int64(2), int64(1), int64(0)}, []any{lane.Queue, lane.Job, lane.Enqueued, lane.Refused, lane.Executing})
	require.Equal(t, map[store.OutcomeKind]int64{store.Success: 2, store.Failure: 2, store.Death: 3, store.Cancellation: 4, store.Snoozed: 5, store.HandedBack: 6, store.Misfit: 8, store.Crash: 1}, lane.Outcomes)
	require.Equal(t, map[observe.LossKind]int64{observe.LeaseLost: 1, observe.HandlerStuck: 0, observe.WorkerCrashed: 1}, totals.Lost)
	require.Equal(t, int64(1), lane.Wait.Counts[0])
	require.Equal(t, int64(1), lane.Wait.Counts[store.Buckets-1])
	require.Equal(t, int64(2), lane.Took.Counts[0])

	did := tally.Take()
	require.Len(t, did, 1)
	require.Equal(t, []int64{2, 2, 2 + 8, 3, 4, 1}, []int64{did[0].Enqueued, did[0].Succeeded, did[0].Failed, did[0].Dead, did[0].Cancelled, did[0].Crashed})
	require.Empty(t, tally.Take(), "it is returned once")
	h.RunSettled(observe.RunVerdict{Run: mail, Outcome: store.Success, Verdict: store.Applied})
	require.Equal(t, []store.LaneTally{{Queue: "default", Job: "mail", Tally: store.Tally{Succeeded: 1}}}, tally.Take())
	require.Equal(t, int64(3), tally.Totals().Lanes[0].Outcomes[store.Success], "the totals stay")
}

func TestWaitsAreCountedOnTheStoresClock(t *testing.T) {
	t.Parallel()
	tally := observe.NewTally()
	tally.SetShared(store.Shared{Now: time.Now().Add(time.Hour), Alive: 3})
	run := mail
	run.DueAt = time.Now().Add(time.Hour).Add(-40 * time.Second)
	execute(tally.Hooks(), run)
	wait := tally.Totals().Lanes[0].Wait
	require.Equal(t, int64(1), wait.Counts[12], "30 s to 60 s: %v", wait)
}

func TestATallyIsBounded(t *testing.T) {
	t.Parallel()
	tally := observe.NewTally()
	h := tally.Hooks()
	for range 2 {
		for i := range store.MaxReportLanes + 50 {
			h.RunSettled(observe.RunVerdict{Run: store.RunInfo{Job: fmt.Sprint("job-", i), Queue: "default"}, Outcome: store.Success, Verdict: store.Applied})
			h.Lock.Decided(lock.Decision{Name: fmt.Sprint("lock-", i)})
		}
	}
	totals := tally.Totals()
	require.Len(t, totals.Lanes, store.MaxReportLanes+1)
	require.Equal(t, []any{store.OtherLanes, store.OtherLanes, int64(100)}, []any{totals.Lanes[0].Queue, totals.Lanes[0].Job, totals.Lanes[0].Outcomes[store.Success]})
	require.Len(t, totals.Locks, 101)
	report := store.WorkerReport{Number: 1, Presence: store.Presence{Every: 1}, Did: tally.Take()}
	require.NoError(t, report.Check(), "a store takes it")
}

func TestATallyCountsCallsAndLocks(t *testing.T) {
	t.Parallel()
	tally := observe.NewTally()
	h := tally.Hooks()
	for _, n := range []int{0, 0, 3, 5000} {
		h.StoreCalled(observe.StoreCall{Verb: "claim", Runs: n, Took: time.Millisecond})
	}
	h.StoreCalled(observe.StoreCall{Verb: "claim", Took: time.Hour, Err: errors.New("gone")})
	h.Lock.Decided(lock.Decision{Name: "nightly", Waited: time.Second, Waiting: 2, Expired: true})
	h.Lock.Decided(lock.Decision{Name: "nightly", Err: lock.ErrInvalid})
	h.Lock.Ended(lock.End{Name: "nightly", Held: time.Minute, Overdue: true})
	h.Lock.Ended(lock.End{Name: "nightly", Held: time.Hour, Lost: true})
	h.Lock.Degraded(lock.Degradation{Passed: 3 * time.Second})
	totals := tally.Totals()
	require.Len(t, totals.Calls, 2)
	require.Equal(t, []any{"claim", false, "claim", true}, []any{totals.Calls[0].Verb, totals.Calls[0].Failed, totals.Calls[1].Verb, totals.Calls[1].Failed})
	require.Equal(t, []int64{4, 1}, []int64{totals.Calls[0].Took.Counts[1], totals.Calls[1].Took.Counts[14]}, "1 ms; more than 10 s")
	require.Equal(t, []any{int64(2), int64(1), int64(1), int64(5003)}, []any{totals.Claims.Counts[0], totals.Claims.Counts[3], totals.Claims.Counts[12], totals.Claims.Sum})
	l := totals.Locks[0]
	require.Equal(t, []int64{1, 1, 1, 1, 0}, []int64{l.Granted, l.Refused, l.Lost, l.Expired, l.Waiting})
	require.Equal(t, int64(time.Hour), l.Hold.Sum, "one that is overdue has not ended")
	require.Equal(t, 3*time.Second, totals.Degraded)
}

func TestATallyIsFilledConcurrently(t *testing.T) {
	t.Parallel()
	tally := observe.NewTally()
	h := tally.Hooks()
	var all sync.WaitGroup
	var taken int64
	for worker := range 8 {
		all.Go(func() {
			for i := range 500 {
				h.RunSettled(observe.RunVerdict{Run: store.RunInfo{Job: fmt.Sprint("j", i%7), Queue: fmt.Sprint("q", worker%2)}, Outcome: store.Success, Verdict: store.Applied})
			}
		})
	}
	take := func() {
		for _, did := range tally.Take() {
			taken += did.Succeeded
		}
	}
	for range 20 {
		take()
	}
	all.Wait()
	take()
	require.Equal(t, int64(4000), taken)
}
