package admit_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func semaphore(id store.LimitID, most int) *store.Limit {
	return &store.Limit{ID: id, Name: "semaphore", Kind: store.LimitSemaphore, Max: most}
}

func runID(n int) (id uuid.UUID) {
	id[14], id[15] = byte(n>>8), byte(n)
	return id
}

// waiters are runs with the numbers from..to in the line of a gate and a lane, due
// one after the other.
func waiters(gate admit.GateID, lane store.LaneID, from, to int, uses ...admit.Use) (all []admit.Waiter) {
	for n := from; n <= to; n++ {
		all = append(all, admit.Waiter{Run: runID(n), Gate: gate, Lane: lane, DueAt: start.Add(time.Duration(n-100_000) * time.Second), Uses: uses})
	}
	return all
}

func join(groups ...[]admit.Waiter) (all []admit.Waiter) {
	for _, group := range groups {
		all = append(all, group...)
	}
	return all
}

func admitted(d admit.Decision) (ids []uuid.UUID) {
	for _, a := range d.Admitted {
		ids = append(ids, a.Run)
	}
	return ids
}

func runs(from, to int) (ids []uuid.UUID) {
	for n := from; n <= to; n++ {
		ids = append(ids, runID(n))
	}
	return ids
}

var (
	ours   = admit.Lane{ID: 1, Ours: true}
	theirs = admit.Lane{ID: 2}
)

func TestSemaphoreAdmitsTheFirstOfItsLine(t *testing.T) {
	gate := admit.GateFor(7, "Acme")
	d := admit.Decide(&admit.Input{
		Now: start, Room: 10,
		Gates:   []admit.Gate{{ID: gate, Limit: semaphore(7, 5), Used: 2, Depth: 11}},
		Lanes:   []admit.Lane{ours},
		Waiters: waiters(gate, 1, 1, 6),
	})
	require.Equal(t, runs(1, 3), admitted(d))
	require.Equal(t, []admit.Permit{{Gate: gate, Weight: 3, Until: store.UntilSettled, Runs: runs(1, 3)}}, d.Permits)
	require.Empty(t, d.Turns, "no place is left: a release inserts the turn")
}

func TestPriorityGoesBeforeTheDueInstantOverAllLanes(t *testing.T) {
	gate := admit.GateFor(7, "")
	d := admit.Decide(&admit.Input{
		Now: start, Room: 2,
		Gates:   []admit.Gate{{ID: gate, Limit: semaphore(7, 5)}},
		Lanes:   []admit.Lane{ours, {ID: 3, Priority: 4, Ours: true}},
		Waiters: join(waiters(gate, 1, 1, 2), waiters(gate, 3, 8, 8)),
	})
	require.Equal(t, []uuid.UUID{runID(8), runID(1)}, admitted(d))
	require.Equal(t, []admit.Turn{{Line: 1, DueAt: start, Gate: gate}}, d.Turns, "the worker has no room for the third")
}

func TestPriorityGoesBeforeTheTurnsOfGates(t *testing.T) {
	in := admit.Input{Now: start, Room: 3, Lanes: []admit.Lane{ours, {ID: 3, Priority: 4, Ours: true}}}
	for i, lane := range []int32{1, 1, 3} {
		gate := admit.GateFor(7, string(rune('a'+i)))
		in.Gates = append(in.Gates, admit.Gate{ID: gate, Limit: semaphore(7, 5)})
		in.Waiters = append(in.Waiters, waiters(gate, lane, 10*i, 10*i+1)...)
	}
	require.Equal(t, []uuid.UUID{runID(20), runID(21), runID(0)}, admitted(admit.Decide(&in)))
}

func TestHeavyHeadBlocksItsLine(t *testing.T) {
	gate := admit.GateFor(7, "k")
	heavy := admit.Use{Gate: gate, Weight: 4}
	in := admit.Input{
		Now: start, Room: 5,
		Gates:   []admit.Gate{{ID: gate, Limit: semaphore(7, 5), Used: 2}},
		Lanes:   []admit.Lane{ours},
		Waiters: join(waiters(gate, 1, 1, 1, heavy), waiters(gate, 1, 2, 3)),
	}
	d := admit.Decide(&in)
	require.Empty(t, d.Admitted)
	require.Equal(t, []admit.Turn{{Line: admit.LimitLine(7), DueAt: start.Add(admit.BlockedAgain), Gate: gate}}, d.Turns,
		"the heavy one may be cancelled, and then nothing else would announce the room for the others")
	in.Gates[0].Used, in.Gates[0].Limit = 0, semaphore(7, 3)
	d = admit.Decide(&in)
	require.Equal(t, runs(1, 1), admitted(d), "heavier than all there is counts as that")
	require.Equal(t, 4, d.Permits[0].Weight)
}

func TestAllGatesOrNone(t *testing.T) {
	tenant, github := admit.GateFor(1, "acme"), admit.GateFor(2, "")
	uses := []admit.Use{{Gate: tenant, Weight: 1}, {Gate: github, Weight: 2}}
	in := admit.Input{
		Now: start, Room: 5,
		Gates: []admit.Gate{
			{ID: tenant, Limit: semaphore(1, 1)},
			{ID: github, Limit: bucket(1000, time.Second, 1)},
		},
		Lanes:   []admit.Lane{ours},
		Waiters: join(waiters(tenant, 1, 1, 1, uses...), waiters(tenant, 1, 2, 3)),
	}
	in.Gates[1].Limit.ID, in.Gates[1].Limit.Burst = 2, 3
	in.Gates[1].Rate = admit.Take(start, 2, in.Gates[1])[0].Rate
	d := admit.Decide(&in)
	require.Equal(t, runs(2, 2), admitted(d), "the first moves, and its place is the next one's")
	require.Equal(t, github, d.Moved[0].To)
	require.Len(t, d.Permits, 1)
	require.Empty(t, d.Rates, "nothing is charged for one that does not start")
	require.Equal(t, []admit.Turn{{Line: admit.LimitLine(2), DueAt: start.Add(2 * time.Millisecond), Gate: github}}, d.Turns,
		"a fast bucket gathers a burst")

	in.Gates[1].Busy = true
	d = admit.Decide(&in)
	require.Empty(t, d.Admitted, "it stays, and keeps its place")
	require.Empty(t, d.Moved)
	require.Equal(t, []admit.Turn{{Line: 1, DueAt: start.Add(admit.BusyAgain), Gate: tenant}}, d.Turns)

	in.Gates[1].Busy, in.Gates[1].Rate = false, admit.Rate{}
	d = admit.Decide(&in)
	require.Equal(t, runs(1, 1), admitted(d))
	require.Len(t, d.Rates, 1)
}

func TestPlacesOfAnotherGateBelongToItsLineFirst(t *testing.T) {
	tenant, github := admit.GateFor(1, "acme"), admit.GateFor(2, "")
	in := admit.Input{
		Now: start, Room: 5, Lanes: []admit.Lane{ours, theirs},
		Gates:   []admit.Gate{{ID: tenant, Limit: semaphore(1, 5)}, {ID: github, Limit: semaphore(2, 1)}},
		Waiters: join(waiters(github, 2, 1, 1), waiters(tenant, 1, 2, 2, admit.Use{Gate: tenant, Weight: 1}, admit.Use{Gate: github, Weight: 1})),
	}
	d := admit.Decide(&in)
	require.Empty(t, d.Admitted)
	require.Equal(t, github, d.Moved[0].To, "behind the older one")
	require.Equal(t, int32(2), d.Keep[0].Lane, "whose worker gets its second")
	in.Waiters[0].DueAt = start
	require.Equal(t, runs(2, 2), admitted(admit.Decide(&in)), "it is the older one now")
}

func TestKeyWhoseWindowOfAllKeysIsBusyIsTriedAgain(t *testing.T) {
	limit := dynamicWindow(20)
	gate := admit.GateFor(4, "k")
	in := admit.Input{
		Now: start, Room: 5, Lanes: []admit.Lane{ours},
		Gates:   []admit.Gate{{ID: gate, Limit: limit}, {ID: admit.Parent(gate), Limit: limit, Busy: true}},
		Waiters: waiters(gate, 1, 1, 2, admit.Use{Gate: gate, Weight: 1}, admit.Use{Gate: admit.Parent(gate), Weight: 1}),
	}
	d := admit.Decide(&in)
	require.Empty(t, d.Admitted)
	require.Equal(t, []admit.Turn{{Line: 1, DueAt: start.Add(admit.BusyAgain), Gate: gate}}, d.Turns)
	in.Gates[1].Busy = false
	require.Len(t, admit.Decide(&in).Admitted, 2)
}

func TestLockedRowRetainsItsPlaceAndIsTriedAgain(t *testing.T) {
	gate := admit.GateFor(7, "k")
	in := admit.Input{
		Now: start, Room: 5, Gates: []admit.Gate{{ID: gate, Limit: semaphore(7, 1)}}, Lanes: []admit.Lane{ours}, Waiters: waiters(gate, 1, 1, 2),
	}
	in.Waiters[0].Held = true
	d := admit.Decide(&in)
	require.Empty(t, d.Admitted)
	require.Equal(t, []admit.Turn{{Line: 1, DueAt: start.Add(admit.HeldAgain), Gate: gate}}, d.Turns)
}

func TestGatesGetOneRunEachBeforeAnyGetsASecond(t *testing.T) {
	in := admit.Input{Now: start, Room: 5, Lanes: []admit.Lane{ours}}
	for key, n := range map[string]int{"a": 100, "b": 200, "c": 300} {
		gate := admit.GateFor(7, key)
		in.Gates = append(in.Gates, admit.Gate{ID: gate, Limit: semaphore(7, 9), Depth: 3})
		in.Waiters = append(in.Waiters, waiters(gate, 1, n, n+2)...)
	}
	d := admit.Decide(&in)
	of := map[admit.GateID]int{}
	for _, a := range d.Admitted {
		of[a.Gate]++
	}
	require.Equal(t, map[admit.GateID]int{in.Gates[0].ID: 2, in.Gates[1].ID: 2, in.Gates[2].ID: 1}, of)
	require.Len(t, d.Turns, 3, "each has more waiters and room for them")
}

func TestLineThatMayHaveMoreThanWasReadGetsATurn(t *testing.T) {
	gate := admit.GateFor(7, "k")
	in := admit.Input{Now: start, Room: 9, Gates: []admit.Gate{{ID: gate, Limit: semaphore(7, 9), Depth: 3}}, Lanes: []admit.Lane{ours}, Waiters: waiters(gate, 1, 1, 3)}
	require.Equal(t, []admit.Turn{{Line: 1, DueAt: start, Gate: gate}}, admit.Decide(&in).Turns)
	in.Gates[0].Depth = 4
	require.Empty(t, admit.Decide(&in).Turns, "all were read, and all start")
	in.Gates[0].Depth, in.Gates[0].Limit = 3, fixed(3, time.Hour)
	require.Equal(t, []admit.Turn{{Line: admit.LimitLine(7), DueAt: start.Add(time.Hour), Gate: gate}}, admit.Decide(&in).Turns)
}

func TestClosedAndOpenStates(t *testing.T) {
	gate := admit.GateFor(7, "k")
	for _, row := range []struct {
		name     string
		limit    store.Limit
		admitted int
	}{
		{"draining", store.Limit{Kind: store.LimitSemaphore, Max: 5, State: store.LimitDraining, WhenFull: store.FullDrop}, 0},
		{"max 0", store.Limit{Kind: store.LimitSemaphore, WhenFull: store.FullFail}, 0},
		{"bucket with max 0", store.Limit{Kind: store.LimitTokenBucket, Period: time.Second, Burst: 1}, 0},
		{"window with max 0", store.Limit{Kind: store.LimitSlidingWindow, Period: time.Second, Buckets: 1}, 0},
		{"off", store.Limit{Kind: store.LimitSemaphore, Max: 1, State: store.LimitOff}, 3},
		{"removed", store.Limit{Kind: store.LimitFixedWindow, Max: 1, Period: time.Second, State: store.LimitRemoved}, 3},
	} {
		row.limit.ID = 7
		d := admit.Decide(&admit.Input{Now: start, Room: 9, Gates: []admit.Gate{{ID: gate, Limit: &row.limit}}, Lanes: []admit.Lane{ours}, Waiters: waiters(gate, 1, 1, 3)})
		require.Len(t, d.Admitted, row.admitted, row.name)
		require.Empty(t, d.Refused, "%s: those that wait for an operator are not refused", row.name)
		require.Empty(t, d.Turns, "%s: a change of the limit inserts turns", row.name)
		require.Empty(t, d.Rates, row.name)
	}
}

func TestActionsOfAFullLimit(t *testing.T) {
	gate := admit.GateFor(7, "k")
	decide := func(action store.LimitAction, uses ...admit.Use) admit.Decision {
		l := semaphore(7, 3)
		l.Name, l.WhenFull, l.RetryAfter = "mail", action, time.Minute
		return admit.Decide(&admit.Input{
			Now: start, Room: 1, Lanes: []admit.Lane{ours}, Waiters: waiters(gate, 1, 1, 5, uses...),
			Gates: []admit.Gate{{ID: gate, Limit: l, Used: 1, Executing: []admit.Executing{
				{Run: runID(90), Weight: 1, Cancelled: true}, {Run: runID(91), Weight: 1}, {Run: runID(92), Weight: 1}, {Run: runID(93), Weight: 1},
			}}},
		})
	}
	for _, row := range []struct {
		action store.LimitAction
		state  store.State
		reason string
	}{
		{store.FullDrop, store.Cancelled, "limit mail was full (max 3)"},
		{store.FullFail, store.Dead, "limit mail was full (max 3)"},
		{store.FullRetry, store.Pending, ""},
	} {
		d := decide(row.action)
		require.Equal(t, runs(1, 1), admitted(d))
		require.Len(t, d.Refused, 3, "the second has a place, the worker no room for it")
		for i, r := range d.Refused {
			require.Equal(t, runID(3+i), r.Run)
			require.Equal(t, row.state, r.State)
			require.Equal(t, row.reason, r.Reason)
		}
		if row.action == store.FullRetry {
			require.Equal(t, start.Add(time.Minute), d.Refused[0].DueAt)
			require.Equal(t, admit.Turn{Line: 1, DueAt: start.Add(time.Minute), Gate: gate}, d.Due[0])
			require.Len(t, d.Due, 3)
		}
	}
	d := decide(store.FullCancelOldest)
	require.Equal(t, runs(1, 1), admitted(d))
	require.Equal(t, runs(91, 92), d.Cancel, "three have no place, and one is being cancelled")
	require.Empty(t, d.Refused)
	d = decide(store.FullDrop, admit.Use{Gate: gate, Weight: 1, WhenFull: store.FullWait})
	require.Empty(t, d.Refused, "what the run says goes before what the limit says")
	d = decide(store.FullWait, admit.Use{Gate: gate, Weight: 1, WhenFull: store.FullRetry, RetryAfter: 2 * time.Minute})
	require.Equal(t, start.Add(2*time.Minute), d.Refused[0].DueAt)
}
