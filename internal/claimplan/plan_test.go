package claimplan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/claimplan"
	"github.com/durable-worker/durable-worker/store"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func dueHead(lane store.LaneID, priority int, second int) store.Head {
	return store.Head{Lane: lane, Queue: "default", Job: "job", Priority: priority, Waiting: true, DueAt: epoch.Add(time.Duration(second) * time.Second), In: -time.Second}
}

func futureHead(lane store.LaneID, in time.Duration) store.Head {
	return store.Head{Lane: lane, Queue: "default", Job: "job", Waiting: true, DueAt: epoch.Add(in), In: in}
}

func noCap(string) int { return -1 }

func claimed(lane store.LaneID, n int, second int) []store.ClaimedRun {
	runs := make([]store.ClaimedRun, n)
	for i := range runs {
		runs[i] = store.ClaimedRun{ID: store.NewRunID(), Lane: lane, DueAt: epoch.Add(time.Duration(second) * time.Second)}
	}
	return runs
}

// planned returns a plan that has read heads at the zero instant, without delay.
// They are to be read again after a minute.
func planned(heads ...store.Head) *claimplan.Plan {
	p := claimplan.New(16 << 20)
	read(p, 0, heads...)
	return p
}

// read has the heads read, without delay.
func read(p *claimplan.Plan, now time.Duration, heads ...store.Head) {
	p.SetHeads(p.Read(now), heads, now, time.Minute)
}

// take applies a claim of the steps of n runs.
func take(p *claimplan.Plan, n int, runs ...store.ClaimedRun) {
	p.ApplyClaim(&store.ClaimRequest{Steps: p.Ask(n, noCap).Steps, Limit: n}, runs)
}

// mustRead reports whether the heads are read before a claim that no wake-up asks
// for.
func mustRead(p *claimplan.Plan, now time.Duration) bool {
	_, read := p.Consider(claimplan.Woken{}, now)
	return read
}

func lanesOf(steps []store.Step) []store.LaneID {
	var lanes []store.LaneID
	for _, s := range steps {
		lanes = append(lanes, s.Lane)
	}
	return lanes
}

func TestPlan_HigherPriorityComesFirst(t *testing.T) {
	p := planned(dueHead(1, 0, 1), dueHead(2, 3, 5), dueHead(3, -2, 9))
	require.Equal(t, []store.LaneID{2, 1, 3}, lanesOf(p.Ask(8, noCap).Steps))
}

func TestPlan_LanesOfOneLevelShareOldestFirst(t *testing.T) {
	p := planned(dueHead(1, 0, 7), dueHead(2, 0, 3), dueHead(3, 0, 5))
	steps := p.Ask(60, noCap).Steps
	require.Equal(t, []store.LaneID{2, 3, 1, 2, 3, 1}, lanesOf(steps))
	require.Equal(t, 20, steps[0].Take)
	require.Equal(t, 20, steps[3].Skip, "the second round passes over the share of the first")
	require.Equal(t, epoch.Add(3*time.Second), steps[0].From, "a claim starts at the mark")
}

func TestPlan_OneOfSixteenIsTheOldest(t *testing.T) {
	p := planned(dueHead(1, 4, 100), dueHead(2, -4, 1))
	oldest := 0
	for range 160 {
		steps := p.Ask(1, noCap).Steps
		if steps[0].Lane == 2 {
			oldest++
		}
		p.ApplyClaim(&store.ClaimRequest{Steps: steps, Limit: 1}, claimed(steps[0].Lane, 1, 50))
	}
	require.InDelta(t, 10, oldest, 1)
	steps := p.Ask(100, noCap).Steps
	require.Equal(t, store.LaneID(2), steps[0].Lane)
	require.InDelta(t, 6, steps[0].Take, 1)
}

func TestPlan_MarksRiseAndShortLanesAreDropped(t *testing.T) {
	p := planned(dueHead(1, 0, 1), dueHead(2, 0, 2))
	take(p, 20, append(claimed(1, 15, 40), claimed(2, 5, 30)...)...)
	require.False(t, mustRead(p, 0), "a full claim says nothing about what is left")
	require.Equal(t, []store.LaneID{2, 1}, lanesOf(p.Ask(20, noCap).Steps)[:2], "the lane that lags behind comes first")
	take(p, 20, claimed(1, 3, 41)...)
	require.True(t, mustRead(p, 0))
	require.Empty(t, p.Ask(20, noCap).Steps)
}

func TestPlan_NextIsTheEarliestFutureHead(t *testing.T) {
	p := planned(futureHead(1, time.Minute), futureHead(2, 3*time.Second), store.Head{Lane: 3})
	require.Equal(t, 3*time.Second, p.Sleep())
	require.Empty(t, p.Ask(5, noCap).Steps)
	require.Empty(t, p.Isolated())

	read(p, 0, futureHead(1, time.Minute), futureHead(2, 3*time.Second), dueHead(-4, 0, 1))
	require.Len(t, p.Isolated(), 1)
	require.Equal(t, 6*time.Second, p.IsolatedFor(5*time.Second))
	require.Equal(t, time.Second, p.Sleep(), "an isolated run waits for room")
	require.False(t, p.AnyDue())
}

func TestPlan_CappedQueueIsNeverOverdrawn(t *testing.T) {
	p := planned(dueHead(1, 2, 1), dueHead(2, 0, 0), dueHead(3, 0, 2))
	taken := 0
	for _, s := range p.Ask(100, func(string) int { return 7 }).Steps {
		taken += s.Take
	}
	require.Equal(t, 7, taken)
	require.Empty(t, p.Ask(100, func(string) int { return 0 }).Steps)
}

func TestPlan_StepsAreBounded(t *testing.T) {
	var due []store.Head
	for i := range 1000 {
		due = append(due, dueHead(store.LaneID(i+1), i%9-4, i))
	}
	require.Len(t, planned(due...).Ask(100, noCap).Steps, 128)
}

func TestPlan_KeepsTheMarksOfLanesThatAreNotDue(t *testing.T) {
	p := claimplan.New(16 << 20)
	reading := p.Read(0)
	require.Nil(t, reading.From)
	p.SetHeads(reading, []store.Head{dueHead(1, 0, 1), {Lane: 2}}, time.Second, time.Minute) // took a second: the next reads start at the marks
	require.Equal(t, map[store.LaneID]time.Time{1: epoch.Add(time.Second), 2: epoch.Add(2 * time.Second)}, p.Read(2*time.Second).From, "the store's time, and nothing before it waits")
	take(p, 5, claimed(1, 3, 40)...)
	read(p, 2*time.Second, store.Head{Lane: 1}, store.Head{Lane: 2})
	require.Equal(t, epoch.Add(40*time.Second), p.Read(2 * time.Second).From[1])

	by, mustRead := p.Consider(claimplan.Woken{Anywhere: true}, 3*time.Second)
	require.Equal(t, claimplan.AnyLane, by)
	require.False(t, mustRead)
	require.Equal(t, store.Step{Lane: 1, From: epoch.Add(40 * time.Second), Take: 10}, p.Ask(5, noCap).Steps[1], "the lane with the older mark comes first")

	read(p, 2*time.Second, store.Head{Lane: 1}, store.Head{Lane: 2})
	_, _ = p.Consider(claimplan.Woken{Anywhere: true}, time.Minute)
	require.Zero(t, p.Ask(5, noCap).Steps[0].From, "it is time to read below the marks")
}

func TestPlan_ReadsBelowTheMarksForATwentiethOfTheTime(t *testing.T) {
	p := planned(dueHead(1, 0, 1))
	readFor := func(began, ended time.Duration) {
		p.SetHeads(p.Read(began), []store.Head{dueHead(1, 0, 1)}, ended, time.Minute)
	}
	below := func(now time.Duration) bool { return p.Read(now).From == nil }
	require.True(t, below(0))
	readFor(900*time.Millisecond, time.Second)
	require.False(t, below(2*time.Second))
	require.True(t, below(3*time.Second))
	readFor(2*time.Second, 2100*time.Millisecond)
	readFor(3900*time.Millisecond, 4*time.Second)
	require.True(t, below(4*time.Second), "the network takes so long either way")
	p.ReadFailed(p.Read(4*time.Second), 64*time.Second)
	require.False(t, below(93*time.Second))
	require.True(t, below(94*time.Second))
	p.ReadFailed(p.Read(93*time.Second), 94*time.Second) // a read from the marks on decides nothing
	require.True(t, below(94*time.Second))
}

func TestPlan_ClaimsByWakeUpsWithoutReadingTheHeads(t *testing.T) {
	named := claimplan.Woken{Lanes: map[store.LaneID]store.Due{2: {Lane: 2}}}
	idle := func() *claimplan.Plan { return planned(store.Head{Lane: 1}, store.Head{Lane: 2}) }
	for _, one := range []struct {
		name  string
		plan  *claimplan.Plan
		woken claimplan.Woken
		now   time.Duration
		by    claimplan.Basis
		lanes []store.LaneID
	}{
		{"a lane that is named", idle(), named, 30 * time.Second, claimplan.NamedLanes, []store.LaneID{2}},
		{"any lane", idle(), claimplan.Woken{Anywhere: true}, 30 * time.Second, claimplan.AnyLane, []store.LaneID{1, 2}},
		{"nothing", idle(), claimplan.Woken{}, 0, claimplan.ByHeads, nil},
		{"a lane that is not known", idle(), claimplan.Woken{Lanes: map[store.LaneID]store.Due{3: {Lane: 3}}}, 0, claimplan.ByHeads, nil},
		{"a lane that has limited runs for the first time", idle(), claimplan.Woken{Lanes: map[store.LaneID]store.Due{2: {Lane: 2, Limited: true}}}, 0,
			claimplan.ByHeads, nil},
		{"a lane that has runs of both kinds", idle(), claimplan.Woken{Lanes: map[store.LaneID]store.Due{2: {Lane: 2, Limited: true, Mixed: true}}}, 0,
			claimplan.ByHeads, []store.LaneID{2}},
		{"a lane known to have limited runs", planned(store.Head{Lane: 2}, store.Head{Lane: 2, Line: 2}),
			claimplan.Woken{Lanes: map[store.LaneID]store.Due{2: {Lane: 2, Limited: true}}}, 0, claimplan.NamedLanes, nil},
		{"a line of a limit", planned(store.Head{Lane: 2}, store.Head{Line: 1 << 30}),
			claimplan.Woken{Lanes: map[store.LaneID]store.Due{1 << 30: {Lane: 1 << 30}}}, 0, claimplan.NamedLanes, nil},
		{"a run that was to become due", idle(), claimplan.Woken{Lanes: named.Lanes, Later: true}, 0, claimplan.ByHeads, []store.LaneID{2}},
		{"after the interval the heads are read", idle(), named, time.Minute, claimplan.ByHeads, []store.LaneID{2}},
		{"before the heads were read", claimplan.New(1), claimplan.Woken{Anywhere: true}, 0, claimplan.ByHeads, nil},
	} {
		t.Run(one.name, func(t *testing.T) {
			by, read := one.plan.Consider(one.woken, one.now)
			require.Equal(t, one.by, by)
			require.Equal(t, one.by == claimplan.ByHeads, read)
			require.Equal(t, one.lanes, lanesOf(one.plan.Ask(5, noCap).Steps))
		})
	}
	var many []store.Head
	for i := range 65 {
		many = append(many, store.Head{Lane: store.LaneID(i + 1)})
	}
	by, read := planned(many...).Consider(claimplan.Woken{Anywhere: true}, 0)
	require.Equal(t, claimplan.ByHeads, by, "too many lanes to claim from without looking")
	require.True(t, read)
	by, _ = planned(many[:64]...).Consider(claimplan.Woken{Anywhere: true}, 0)
	require.Equal(t, claimplan.AnyLane, by)
}

func TestPlan_RestsWhenAClaimGotAllThereWas(t *testing.T) {
	p := planned(dueHead(1, 0, 1), dueHead(2, 0, 1), futureHead(3, 50*time.Second))
	take(p, 20, append(claimed(1, 10, 1), claimed(2, 5, 1)...)...)
	require.False(t, p.AnyDue(), "both gave less than was asked of them")
	require.True(t, p.Relax())
	by, read := p.Consider(claimplan.Woken{Lanes: map[store.LaneID]store.Due{1: {Lane: 1}}}, time.Second)
	require.Equal(t, claimplan.NamedLanes, by)
	require.False(t, read)
	take(p, 10, claimed(1, 1, 2)...)
	require.True(t, p.Relax())
	by, _ = p.Consider(claimplan.Woken{Lanes: map[store.LaneID]store.Due{2: {Lane: 2}}}, time.Second)
	require.Equal(t, claimplan.NamedLanes, by)
	require.False(t, p.Relax(), "a lane is due")

	for _, one := range []struct{ now, later, want time.Duration }{
		{0, -1, 50 * time.Second}, // the head of lane 3
		{0, 20 * time.Second, 20 * time.Second},
		{55 * time.Second, -1, 0},
	} {
		require.Equal(t, one.want, p.SleepUnread(one.now, one.later))
	}
	require.Equal(t, time.Minute, planned(store.Head{Lane: 1}).SleepUnread(0, -1), "until the heads are to be read")

	slow := claimplan.New(1)
	slow.SetHeads(slow.Read(time.Second), nil, 3*time.Second, time.Minute)
	require.Equal(t, 58*time.Second, slow.SleepUnread(3*time.Second, -1), "since the reading began")
}

func TestPlan_ReadsTheHeadsAgain(t *testing.T) {
	p := planned(dueHead(1, 0, 1))
	require.False(t, mustRead(p, time.Second-1))
	require.True(t, mustRead(p, time.Second), "they are good for a second")
	p.Outdate()
	require.True(t, mustRead(p, 0))

	p = planned(dueHead(1, 0, 1))
	p.ApplyClaim(&store.ClaimRequest{Alone: true, Limit: 1}, claimed(1, 1, 1))
	require.True(t, mustRead(p, 0), "an isolated run changes the lines")

	p = planned(dueHead(1, 0, 1))
	take(p, 20, claimed(1, 1, 1)...)
	require.True(t, p.Relax())
	_, read := p.Consider(claimplan.Woken{Anywhere: true}, 0)
	require.False(t, read)
	take(p, 20, claimed(1, 20, 1)...)
	require.False(t, mustRead(p, 0), "neither the claim that got all there was nor a full one asks for that")
}

// A reading answers the wake-ups that called for it; what came of one that failed is not
// known to later ones.
func TestPlan_AReadingThatFailedIsRepeatedWhateverWakesTheWorker(t *testing.T) {
	p := planned(store.Head{Lane: 1})
	_, mustRead := p.Consider(claimplan.Woken{Lanes: map[store.LaneID]store.Due{2: {Lane: 2}}}, time.Second)
	require.True(t, mustRead)
	p.ReadFailed(p.Read(time.Second), 2*time.Second)
	by, mustRead := p.Consider(claimplan.Woken{Lanes: map[store.LaneID]store.Due{1: {Lane: 1}}}, 2*time.Second)
	require.Equal(t, claimplan.ByHeads, by)
	require.True(t, mustRead)
}

// A worker that is busy reads no heads for a wake-up that names no lane; before it rests, it does.
func TestPlan_AWakeUpThatNamesNoLaneIsAnsweredBeforeARest(t *testing.T) {
	for _, woken := range []claimplan.Woken{{Anywhere: true}, {Later: true}} {
		p := planned(dueHead(1, 0, 1), store.Head{Lane: 2})
		_, mustRead := p.Consider(woken, time.Millisecond)
		require.False(t, mustRead, "there is work that it knows of")
		take(p, 20, claimed(1, 1, 1)...)
		require.False(t, p.Relax())
		_, mustRead = p.Consider(claimplan.Woken{}, time.Millisecond)
		require.True(t, mustRead)
		read(p, time.Millisecond, store.Head{Lane: 1}, store.Head{Lane: 2})
		require.True(t, p.Relax())
	}
}

// What a limit's line announced may be left on the lines of lanes by another admission.
func TestPlan_ALimitsLineIsLookedForOnAllLines(t *testing.T) {
	p := planned(store.Head{Lane: 2}, store.Head{Lane: 2, Line: 2}, store.Head{Line: 1 << 30})
	p.Consider(claimplan.Woken{Lanes: map[store.LaneID]store.Due{1 << 30: {Lane: 1 << 30}}}, 0)
	require.Len(t, p.Ask(10, noCap).Admissions, 2)
}

func TestPlan_LaneIsTheHeadThatWasRead(t *testing.T) {
	p := planned(dueHead(1, 4, 1))
	require.Equal(t, dueHead(1, 4, 1), *p.Lane(1))
	require.Nil(t, p.Lane(2))
}

// TestWhatIsDueLaterIsLeftToOthers: a worker that has just taken runs sees to the next itself.
func TestWhatIsDueLaterIsLeftToOthers(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	heads := []store.Head{{Lane: 1, Waiting: true, DueAt: at, In: 2 * time.Second, After: 500 * time.Millisecond}}
	p := claimplan.New(1 << 20)
	p.SetHeads(p.Read(0), heads, 0, time.Minute)
	require.Equal(t, 2500*time.Millisecond, p.Sleep())
	p.ApplyClaim(&store.ClaimRequest{Limit: 10}, []store.ClaimedRun{{Lane: 1, DueAt: at}})
	p.SetHeads(p.Read(0), heads, 0, time.Minute)
	require.Equal(t, 2*time.Second+10*time.Millisecond, p.Sleep(), "it has taken some")
	p.SetHeads(p.Read(0), heads, 0, time.Minute)
	require.Equal(t, 2500*time.Millisecond, p.Sleep(), "it has found none since")
	p.Consider(claimplan.Woken{Later: true}, 0)
	p.SetHeads(p.Read(0), heads, 0, time.Minute)
	require.Equal(t, 2*time.Second+10*time.Millisecond, p.Sleep(), "it expected one")
}
