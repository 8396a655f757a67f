package admit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

func TestPlacesAreKeptForLanesOfOthersForASecondIn31(t *testing.T) {
	gate := admit.GateFor(7, "k")
	in := admit.Input{
		Now: start, Room: 5, Lanes: []admit.Lane{ours, theirs},
		Gates:   []admit.Gate{{ID: gate, Limit: semaphore(7, 2)}},
		Waiters: join(waiters(gate, 2, 1, 2), waiters(gate, 1, 3, 4)),
	}
	kept := admit.Kept{Gate: gate, Lane: 2, ExpiresAt: start.Add(admit.KeepFor)}
	d := admit.Decide(&in)
	require.Empty(t, d.Admitted, "both places belong to older waiters of the other lane")
	require.Equal(t, []admit.Kept{kept}, d.Keep)
	require.ElementsMatch(t, []admit.Turn{{Line: 2, DueAt: start, Gate: gate}, {Line: 1, DueAt: kept.ExpiresAt, Gate: gate}}, d.Turns)

	in.Kept, in.Now = d.Keep, start.Add(500*time.Millisecond)
	d = admit.Decide(&in)
	require.Empty(t, d.Admitted)
	require.Empty(t, d.Keep, "the instant does not move")
	require.Contains(t, d.Turns, admit.Turn{Line: 1, DueAt: kept.ExpiresAt, Gate: gate})

	in.Now = kept.ExpiresAt
	d = admit.Decide(&in)
	require.Equal(t, runs(3, 4), admitted(d), "its workers have not come")
	in.Now = kept.ExpiresAt.Add(admit.SkipFor - time.Microsecond)
	require.Len(t, admit.Decide(&in).Admitted, 2)
	in.Now = kept.ExpiresAt.Add(admit.SkipFor)
	d = admit.Decide(&in)
	require.Empty(t, d.Admitted, "and then again")
	require.Equal(t, in.Now.Add(admit.KeepFor), d.Keep[0].ExpiresAt)
}

func TestPlacesThatAreNotOthersAreTaken(t *testing.T) {
	gate := admit.GateFor(7, "k")
	in := admit.Input{
		Now: start, Room: 5, Lanes: []admit.Lane{ours, theirs},
		Gates:   []admit.Gate{{ID: gate, Limit: semaphore(7, 3)}},
		Waiters: join(waiters(gate, 2, 1, 1), waiters(gate, 1, 2, 4), waiters(gate, 2, 5, 5)),
	}
	d := admit.Decide(&in)
	require.Equal(t, runs(2, 3), admitted(d))
	require.Equal(t, int64(1), int64(len(d.Keep)), "the last place is kept")
	in.Lanes[1].Paused = true
	d = admit.Decide(&in)
	require.Equal(t, runs(2, 4), admitted(d), "a paused queue keeps no places")
	in.Gates[0].Limit = semaphore(7, 4)
	d = admit.Decide(&in)
	require.Equal(t, []admit.Turn{{Line: 2, DueAt: start, Gate: gate}}, d.Turns, "it has a turn at its resumption")
}

func TestANewWorkerRetainsItsPlacesAndASlowOneLosesThem(t *testing.T) {
	gate := admit.GateFor(7, "k")
	row := admit.Kept{Gate: gate, Lane: 1, ExpiresAt: start.Add(time.Millisecond)}
	in := admit.Input{
		Now: start, Room: 2, Lanes: []admit.Lane{ours, theirs}, Kept: []admit.Kept{row},
		Gates: []admit.Gate{{ID: gate, Limit: semaphore(7, 4)}}, Waiters: waiters(gate, 1, 1, 2),
	}
	d := admit.Decide(&in)
	require.Equal(t, []admit.Kept{{Gate: gate, Lane: 1}}, d.Unkeep)
	require.Empty(t, d.Keep)
	in.Room = 1
	d = admit.Decide(&in)
	require.Equal(t, []admit.Kept{{Gate: gate, Lane: 1, ExpiresAt: start}}, d.Keep, "it has no room for the second: others skip its lane for a while")
	require.Empty(t, d.Unkeep)
	in.Room, in.Gates[0].Used = 5, 4
	d = admit.Decide(&in)
	require.Equal(t, []admit.Kept{{Gate: gate, Lane: 1}}, d.Unkeep, "the gate is full: it came all the same")
}

func TestIsolatedRunsHavePlacesFor20SecondsIn10Minutes(t *testing.T) {
	gate := admit.GateFor(7, "k")
	in := admit.Input{
		Now: start, Room: 5, Lanes: []admit.Lane{ours, {ID: -1}},
		Gates: []admit.Gate{{ID: gate, Limit: semaphore(7, 1)}}, Waiters: join(waiters(gate, -1, 1, 1), waiters(gate, 1, 2, 2)),
	}
	d := admit.Decide(&in)
	require.Equal(t, []admit.Kept{{Gate: gate, Lane: -1, ExpiresAt: start.Add(20 * time.Second)}}, d.Keep)
	in.Kept, in.Now = d.Keep, start.Add(10*time.Minute-time.Second)
	require.Len(t, admit.Decide(&in).Admitted, 1)
	in.Now = start.Add(10 * time.Minute)
	require.Empty(t, admit.Decide(&in).Admitted)
}

// TestKeyWaitsNoLongerThanOneRoundOfAllKeys: with n places of a worker and turns in
// the order of their age, a key is served once in ⌈keys / n⌉ admissions, however
// many runs it has.
//
// Mutants that it finds: Decide finishing one gate before the next.
func TestKeyWaitsNoLongerThanOneRoundOfAllKeys(t *testing.T) {
	const keys, room = 50, 8
	limit := semaphore(7, 100)
	left := map[admit.GateID]int{}
	var turns []admit.GateID
	next := map[admit.GateID]int{}
	for key := range keys {
		gate := admit.GateFor(7, string(rune('a'+key)))
		turns = append(turns, gate)
		next[gate], left[gate] = key*200, 20
		if key%10 == 0 {
			left[gate] = 200
		}
	}
	served := map[admit.GateID]int{}
	for round := 0; len(turns) > 0; round++ {
		in := admit.Input{Now: start.Add(time.Duration(round) * time.Millisecond), Room: room, Lanes: []admit.Lane{ours}}
		taken := turns[:min(room, len(turns))]
		turns = turns[len(taken):]
		depth := admit.Depth(room, len(taken), store.FullWait)
		for _, gate := range taken {
			in.Gates = append(in.Gates, admit.Gate{ID: gate, Limit: limit, Depth: depth})
			in.Waiters = append(in.Waiters, waiters(gate, 1, next[gate], next[gate]+min(depth, left[gate])-1)...)
		}
		d := admit.Decide(&in)
		require.Len(t, d.Admitted, room)
		for _, a := range d.Admitted {
			if round > 0 && left[a.Gate] > 0 {
				require.LessOrEqual(t, round-served[a.Gate], (keys+room-1)/room)
			}
			served[a.Gate] = round
			next[a.Gate]++
			left[a.Gate]--
		}
		for _, turn := range d.Turns {
			turns = append(turns, turn.Gate)
		}
		if len(turns) < room {
			break
		}
	}
	require.Len(t, served, keys)
}
