package admit_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

func TestGateNamesItsLimitAndItsKey(t *testing.T) {
	// The SHA-256 of "acme" begins so; its first 43 bits after 7 · 2^43.
	require.Equal(t, admit.GateID(7<<43|0x822b33ad87c148a0>>21), admit.GateFor(7, "ACME"))
	require.Equal(t, admit.GateFor(7, "Ärger"), admit.GateFor(7, "äRGER"))
	require.NotEqual(t, admit.GateFor(7, "acme"), admit.GateFor(8, "acme"))
	for _, limit := range []store.LimitID{1, 7, store.MaxLimitID} {
		first, last := admit.GateRange(limit)
		for _, key := range []string{"", "a", "acme"} {
			gate := admit.GateFor(limit, key)
			require.True(t, gate >= first && gate <= last && gate > 0)
			require.Equal(t, limit, admit.LimitOf(gate))
			require.Equal(t, key != "", admit.Keyed(gate))
			require.Equal(t, admit.GateFor(limit, ""), admit.Parent(gate))
		}
		line := admit.LimitLine(limit)
		require.Equal(t, limit, admit.LineLimit(line))
		require.Greater(t, line, int32(1<<30))
	}
	require.Zero(t, admit.LineLimit(1<<30-1))
	require.Zero(t, admit.LineLimit(-5))
}

func TestRunHasItsKeyedGatesFirst(t *testing.T) {
	gates := []admit.GateID{admit.GateFor(1, ""), admit.GateFor(9, "b"), admit.GateFor(2, "a"), admit.GateFor(3, "")}
	var uses []admit.Use
	for _, gate := range gates {
		uses = append(uses, admit.Use{Gate: gate, Weight: 1})
	}
	admit.Order(uses)
	require.Equal(t, gates[2], uses[0].Gate)
	require.Equal(t, []admit.GateID{gates[2], gates[1], gates[0], gates[3]}, []admit.GateID{uses[0].Gate, uses[1].Gate, uses[2].Gate, uses[3].Gate})
	require.Equal(t, admit.SetOf(uses), admit.LineOf(uses))
	require.True(t, admit.IsSet(admit.LineOf(uses)))
	uses[0].Has = true
	require.Equal(t, gates[1], admit.LineOf(uses), "a retried run waits only for what it has no permit of")
	for i := range uses {
		uses[i].Mode, uses[i].Has = store.LimitRelease, false
	}
	require.Equal(t, admit.AllPermits, admit.LineOf(uses))
	dynamic := store.Limit{ID: 4, Kind: store.LimitDynamicWindow}
	require.Equal(t, []admit.GateID{admit.GateFor(4, "a"), admit.GateFor(4, "")}, admit.Gates(&dynamic, "a"))
	require.Equal(t, gates[2:3], admit.Gates(&store.Limit{ID: 2}, "a"))
}

func TestUsesOfALimit(t *testing.T) {
	use := store.LimitUse{Limit: "dynamic", Key: "A", Weight: 3, WhenFull: store.FullRetry, RetryAfter: time.Minute}
	want := admit.Use{Gate: admit.GateFor(4, "a"), Weight: 3, Until: store.UntilSettled, WhenFull: store.FullRetry, RetryAfter: time.Minute}
	all := want
	all.Gate = admit.GateFor(4, "")
	require.Equal(t, []admit.Use{want, all}, admit.Uses(dynamicWindow(20), &use))
	use = store.LimitUse{Limit: "semaphore", Mode: store.LimitAcquire, Owner: "batch", OwnedFor: time.Hour}
	require.Equal(t, []admit.Use{{Gate: admit.GateFor(7, ""), Weight: 1, Until: store.UntilExpires, Mode: store.LimitAcquire, Owner: admit.OwnerID("batch"), OwnedFor: time.Hour}},
		admit.Uses(semaphore(7, 1), &use))
}

func TestPermitEndsWithTheStateOfItsRun(t *testing.T) {
	states := store.States()
	for until, ends := range map[store.LimitUntil][]store.State{
		store.UntilSettled:           {store.Pending, store.Succeeded, store.Dead, store.Cancelled},
		store.UntilFinished:          {store.Succeeded, store.Dead, store.Cancelled},
		store.UntilFinishedOrRevived: {store.Succeeded, store.Cancelled},
		store.UntilExpires:           {},
	} {
		for _, state := range states {
			require.Equal(t, slices.Contains(ends, state), admit.Ends(until, state), "%v, %v", until, state)
		}
		require.Equal(t, until != store.UntilExpires, admit.EndsWithDeletion(until))
	}
	require.True(t, admit.Expired(start, start))
	require.False(t, admit.Expired(start.Add(1), start))
	require.False(t, admit.Expired(time.Time{}, start))
	require.True(t, admit.GivesBack(store.LimitRelease, store.Succeeded))
	require.False(t, admit.GivesBack(store.LimitRelease, store.Dead))
	require.False(t, admit.GivesBack(store.LimitAcquire, store.Succeeded))
}

func TestPermitsOfRunsAndOwners(t *testing.T) {
	gate := admit.GateFor(7, "k")
	owner := admit.OwnerID("batch 1")
	in := admit.Input{Now: start, Room: 9, Gates: []admit.Gate{{ID: gate, Limit: semaphore(7, 4)}}, Lanes: []admit.Lane{ours}}
	finished := admit.Use{Gate: gate, Weight: 2, Until: store.UntilFinished}
	acquires := admit.Use{Gate: gate, Weight: 1, Mode: store.LimitAcquire, Owner: owner, OwnedFor: time.Hour}
	releases := admit.Use{Gate: gate, Weight: 1, Mode: store.LimitRelease, Owner: owner}
	in.Waiters = join(waiters(gate, 1, 1, 1, finished), waiters(gate, 1, 2, 3, acquires), waiters(gate, 1, 4, 4, releases), waiters(gate, 1, 5, 7))
	d := admit.Decide(&in)
	require.Equal(t, runs(1, 5), admitted(d), "the owner counts once, and the one that releases does not count")
	permit := admit.Permit{Gate: gate, Weight: 1, Until: store.UntilExpires, Owner: owner, ExpiresAt: start.Add(time.Hour)}
	require.Equal(t, []admit.Permit{
		{Gate: gate, Weight: 2, Until: store.UntilFinished, Owner: runID(1), Runs: runs(1, 1)},
		permit,
		{Gate: gate, Weight: 1, Until: store.UntilSettled, Runs: runs(5, 5)},
	}, d.Permits)
	require.Equal(t, []admit.Turn{{Line: admit.LimitLine(7), DueAt: start.Add(time.Hour), Gate: gate}}, d.Turns,
		"no release announces the end of the owner's permit")

	in.Gates[0].Used, in.Gates[0].FreesAt = 4, start.Add(time.Minute)
	finished.Has, acquires.Has = true, true
	in.Waiters = join(waiters(gate, 1, 1, 1, finished), waiters(gate, 1, 2, 2, acquires), waiters(gate, 1, 5, 7))
	d = admit.Decide(&in)
	require.Equal(t, runs(1, 2), admitted(d), "they have their permits")
	require.Equal(t, []admit.Permit{permit}, d.Permits, "the owner's is extended")
	require.Equal(t, start.Add(time.Minute), d.Turns[0].DueAt)
}

func TestRunWithAllItsPermitsStartsThoughItsGatesAreFull(t *testing.T) {
	gate := admit.GateFor(7, "k")
	use := admit.Use{Gate: gate, Weight: 1, Until: store.UntilFinished, Has: true}
	in := admit.Input{
		Now: start, Room: 9, Lanes: []admit.Lane{ours},
		Gates:   []admit.Gate{{ID: admit.AllPermits}, {ID: gate, Limit: semaphore(7, 1), Used: 1}},
		Waiters: waiters(admit.AllPermits, 1, 1, 1, use),
	}
	require.Equal(t, runs(1, 1), admitted(admit.Decide(&in)))
	in.Waiters[0].Uses = []admit.Use{{Gate: gate, Weight: 1}}
	d := admit.Decide(&in)
	require.Empty(t, d.Admitted, "its permit was taken away")
	require.Equal(t, gate, d.Moved[0].To)
}

func dynamicWindow(most int) *store.Limit {
	return &store.Limit{ID: 4, Name: "dynamic", Kind: store.LimitDynamicWindow, Max: most, Period: time.Hour, Buckets: 60, Least: 2, Most: 20}
}

func TestSharesOfADynamicWindow(t *testing.T) {
	for keys, want := range map[int][]int{1: {20}, 2: {10, 10}, 3: {7, 7, 6}, 4: {5, 5, 5, 5}, 10: {2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, 11: {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}} {
		var got []int
		for rank := range keys {
			got = append(got, admit.Share(20, keys, rank, 2, 20))
		}
		require.Equal(t, want, got)
	}
	require.Equal(t, 8, admit.Share(20, 2, 0, 2, 8), "at most the most")
	require.Equal(t, 3, admit.Share(3, 1, 0, 5, 5), "and what there is")
	require.Zero(t, admit.Share(20, 0, 0, 2, 20))
}

// takeAll takes starts of a key until none is left, and returns how many.
func takeAll(now time.Time, l *store.Limit, key string, live []admit.LiveKey, rates map[admit.GateID]admit.Rate) (n int, last []admit.Taken) {
	gate := admit.GateFor(l.ID, key)
	for ; ; n++ {
		last = admit.Take(now, 1, admit.Gate{ID: gate, Limit: l, Rate: rates[gate]}, admit.Gate{ID: admit.Parent(gate), Limit: l, Rate: rates[admit.Parent(gate)], Live: live})
		if !last[0].OK {
			return n, last
		}
		rates[gate], rates[admit.Parent(gate)] = last[0].Rate, last[1].Rate
	}
}

func TestKeysShareADynamicWindow(t *testing.T) {
	l := dynamicWindow(20)
	rates := map[admit.GateID]admit.Rate{}
	live := func(keys ...string) (all []admit.LiveKey) {
		for _, key := range keys {
			all = append(all, admit.LiveKey{Gate: admit.GateFor(4, key), LastAt: start.UnixMicro()})
		}
		return all
	}
	a, _ := takeAll(start, l, "a", live("a", "b"), rates)
	b, _ := takeAll(start, l, "b", live("a", "b"), rates)
	c, last := takeAll(start, l, "c", live("a", "b"), rates)
	require.Equal(t, []int{10, 10, 0}, []int{a, b, c}, "the window of all keys bounds the sum")
	require.Equal(t, start.Add(time.Hour), last[1].Next)
	later := start.Add(time.Hour)
	c, _ = takeAll(later, l, "c", live("a", "b"), rates)
	require.Equal(t, 20, c, "the others are live no more")
	require.Equal(t, later.UnixMicro(), rates[admit.GateFor(4, "c")].Since)
	require.Equal(t, later.UnixMicro(), rates[admit.GateFor(4, "c")].LastAt)
}

func TestKeyBeyondAThousandWaitsUntilOneIsLiveNoMore(t *testing.T) {
	l := dynamicWindow(5000)
	var live []admit.LiveKey
	for i := range store.MaxLimitKeys {
		live = append(live, admit.LiveKey{Gate: admit.GateFor(4, uuid.NewSHA1(uuid.Nil, []byte{byte(i), byte(i >> 8)}).String()), LastAt: start.Add(time.Duration(i) * time.Second).UnixMicro()})
	}
	now := start.Add(1000 * time.Second)
	n, last := takeAll(now, l, "another", live, map[admit.GateID]admit.Rate{})
	require.Zero(t, n)
	require.Equal(t, start.Add(time.Hour), last[0].Next)
	n, _ = takeAll(start.Add(time.Hour), l, "another", live, map[admit.GateID]admit.Rate{})
	require.Equal(t, 5, n)
}

func TestTurnOfARateIsDueWhenEnoughIsFree(t *testing.T) {
	gate := admit.GateFor(7, "k")
	for _, row := range []struct {
		limit *store.Limit
		after time.Duration
	}{
		{bucket(1, time.Minute, 1), time.Minute},
		{bucket(10_000, time.Second, 1), time.Millisecond},        // 0.1 ms a start, but not earlier than in a millisecond
		{bucket(10_000, time.Second, 1000), 5 * time.Millisecond}, // gathers 50 starts
		{bucket(500, time.Second, 10), 6 * time.Millisecond},      // gathers 3 starts of 2 ms
		{fixed(3, time.Hour), time.Hour},
		{sliding(3, time.Minute, 6), time.Minute},
	} {
		limit := *row.limit
		limit.ID = 7
		g := admit.Gate{ID: gate, Limit: &limit}
		g.Rate = admit.Take(start, limit.Capacity(), g)[0].Rate
		in := admit.Input{Now: start, Room: 9, Lanes: []admit.Lane{ours}, Gates: []admit.Gate{g}, Waiters: waiters(gate, 1, 1, 2)}
		require.Equal(t, []admit.Turn{{Line: admit.LimitLine(7), DueAt: start.Add(row.after), Gate: gate}}, admit.Decide(&in).Turns, named(&limit))
		in.Gates[0].NotBefore = start.Add(2 * time.Hour)
		require.Equal(t, start.Add(2*time.Hour), admit.Decide(&in).Turns[0].DueAt, "penalized")
		in.Lanes[0].Paused = true
		require.Equal(t, []admit.Turn{{Line: 1, DueAt: start.Add(2 * time.Hour), Gate: gate}}, admit.Decide(&in).Turns, "a paused lane has it on its own line")
	}
}

// TestTheSecretDecidesWhichKeysShareAGate requires that the same keys have other gates in a
// limit with another secret, apart from the gate without a key, which all programs know.
func TestTheSecretDecidesWhichKeysShareAGate(t *testing.T) {
	t.Parallel()
	one, other := &store.Limit{ID: 7, Secret: uuid.New()}, &store.Limit{ID: 7, Secret: uuid.New()}
	for key := range 1000 {
		text := fmt.Sprint(key)
		require.NotEqual(t, admit.GateOf(one, text), admit.GateOf(other, text))
		require.Equal(t, admit.GateOf(one, text), admit.GateOf(one, text))
		require.EqualValues(t, 7, admit.LimitOf(admit.GateOf(one, text)))
		require.Equal(t, text, admit.KeyOf(admit.GateOf(one, text), one.Secret, []store.LimitUse{{Key: "x"}, {Key: text}}))
	}
	require.Equal(t, admit.Unkeyed(7), admit.GateOf(one, ""))
	require.Equal(t, admit.GateFor(7, "k"), admit.GateOf(&store.Limit{ID: 7}, "k"), "a limit that is older than secrets keeps its gates")
}
