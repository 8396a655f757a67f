package durable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func dueHead(lane store.LaneID, priority int, second int) store.Head {
	return store.Head{Lane: lane, Queue: "default", Job: "job", Priority: priority, Waiting: true, DueAt: epoch.Add(time.Duration(second) * time.Second), In: -time.Second}
}

func noCap(string) int { return -1 }

func claimed(lane store.LaneID, n int, second int) []store.ClaimedRun {
	runs := make([]store.ClaimedRun, n)
	for i := range runs {
		runs[i] = store.ClaimedRun{ID: NewRunID(), Lane: lane, DueAt: epoch.Add(time.Duration(second) * time.Second)}
	}
	return runs
}

func TestPlan_HigherPriorityComesFirst(t *testing.T) {
	var p plan
	p.learn([]store.Head{dueHead(1, 0, 1), dueHead(2, 3, 5), dueHead(3, -2, 9)})
	steps := p.steps(8, noCap)
	require.Equal(t, []store.LaneID{2, 1, 3}, lanesOf(steps))
}

func TestPlan_LanesOfOneLevelShareOldestFirst(t *testing.T) {
	var p plan
	p.learn([]store.Head{dueHead(1, 0, 7), dueHead(2, 0, 3), dueHead(3, 0, 5)})
	steps := p.steps(60, noCap)
	require.Equal(t, []store.LaneID{2, 3, 1, 2, 3, 1}, lanesOf(steps))
	require.Equal(t, 20, steps[0].Take)
	require.Equal(t, 20, steps[3].Skip, "the second round passes over the share of the first")
	require.Equal(t, epoch.Add(3*time.Second), steps[0].From, "a claim starts at the mark")
}

func TestPlan_OneOfSixteenIsTheOldest(t *testing.T) {
	var p plan
	p.learn([]store.Head{dueHead(1, 4, 100), dueHead(2, -4, 1)})
	oldest := 0
	for range 160 {
		steps := p.steps(1, noCap)
		oldest += b2i(steps[0].Lane == 2)
		p.took(steps, claimed(steps[0].Lane, 1, 50), 1)
	}
	require.InDelta(t, 10, oldest, 1)
	steps := p.steps(100, noCap)
	require.Equal(t, store.LaneID(2), steps[0].Lane)
	require.InDelta(t, 6, steps[0].Take, 1)
}

func TestPlan_MarksRiseAndShortLanesAreDropped(t *testing.T) {
	var p plan
	p.learn([]store.Head{dueHead(1, 0, 1), dueHead(2, 0, 2)})
	steps := p.steps(20, noCap)
	p.took(steps, append(claimed(1, 15, 40), claimed(2, 5, 30)...), 20)
	require.False(t, p.stale, "a full claim says nothing about what is left")
	require.Equal(t, []store.LaneID{2, 1}, lanesOf(p.steps(20, noCap))[:2], "the lane that lags behind comes first")
	p.took(p.steps(20, noCap), claimed(1, 3, 41), 20)
	require.True(t, p.stale)
	require.Empty(t, p.steps(20, noCap))
}

func TestPlan_NextIsTheEarliestFutureHead(t *testing.T) {
	var p plan
	future := func(lane store.LaneID, in time.Duration) store.Head { h := dueHead(lane, 0, 0); h.In = in; return h }
	p.learn([]store.Head{future(1, time.Minute), future(2, 3*time.Second), {Lane: 3}, dueHead(-4, 0, 1)})
	require.Equal(t, 3*time.Second, p.next)
	require.Empty(t, p.steps(5, noCap))
	require.Len(t, p.isolated, 1)
}

func TestPlan_CappedQueueIsNeverOverdrawn(t *testing.T) {
	var p plan
	heads := []store.Head{dueHead(1, 2, 1), dueHead(2, 0, 0), dueHead(3, 0, 2)}
	p.learn(heads)
	taken := 0
	for _, s := range p.steps(100, func(string) int { return 7 }) {
		taken += s.Take
	}
	require.Equal(t, 7, taken)
	require.Empty(t, p.steps(100, func(string) int { return 0 }))
}

func TestPlan_StepsAreBounded(t *testing.T) {
	var p plan
	var heads []store.Head
	for i := range 1000 {
		heads = append(heads, dueHead(store.LaneID(i+1), i%9-4, i))
	}
	p.learn(heads)
	require.LessOrEqual(t, len(p.steps(100, noCap)), maxSteps)
	require.False(t, p.blind(), "too many lanes to claim from without looking")
}

func lanesOf(steps []store.Step) []store.LaneID {
	var lanes []store.LaneID
	for _, s := range steps {
		lanes = append(lanes, s.Lane)
	}
	return lanes
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestPlan_KeepsTheMarksOfLanesThatAreNotDue(t *testing.T) {
	var p plan
	p.learn([]store.Head{dueHead(1, 0, 1), {Lane: 2}})
	require.Equal(t, map[store.LaneID]time.Time{1: epoch.Add(time.Second), 2: epoch.Add(2 * time.Second)}, p.bounds(), "the store's time, and nothing before it waits")
	p.took(p.steps(5, noCap), claimed(1, 3, 40), 5)
	p.learn([]store.Head{{Lane: 1}, {Lane: 2}})
	require.Equal(t, epoch.Add(40*time.Second), p.bounds()[1])
	require.True(t, p.blind())
	require.Equal(t, store.Step{Lane: 1, From: epoch.Add(40 * time.Second), Take: 10}, p.steps(5, noCap)[1], "the lane with the older mark comes first")
	p.unmark()
	require.Zero(t, p.steps(5, noCap)[0].From)
	require.Empty(t, p.bounds())
}

func TestReach_LooksBelowTheMarksForATwentiethOfTheTime(t *testing.T) {
	var r reach
	require.True(t, r.below(0))
	r.lookedBelow(time.Second, 100*time.Millisecond)
	require.False(t, r.below(2*time.Second))
	require.True(t, r.below(3*time.Second))
	r.lookedAbove(100 * time.Millisecond)
	r.lookedBelow(3*time.Second, 100*time.Millisecond)
	require.True(t, r.below(3*time.Second), "the network takes so long either way")
	r.lookedBelow(4*time.Second, time.Minute)
	require.False(t, r.below(33*time.Second))
	require.True(t, r.below(34*time.Second))
}
