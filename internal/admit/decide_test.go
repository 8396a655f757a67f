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
func waiters(gate admit.GateID, lane store.LaneID, from, to int) (all []admit.Waiter) {
	for n := from; n <= to; n++ {
		all = append(all, admit.Waiter{Run: runID(n), Gate: gate, Lane: lane, DueAt: start.Add(time.Duration(n-1000) * time.Second)})
	}
	return all
}

func admitted(d admit.Decision) (ids []uuid.UUID) {
	for _, a := range d.Admitted {
		ids = append(ids, a.Run)
	}
	return ids
}

func TestSemaphoreAdmitsTheFirstOfItsLine(t *testing.T) {
	gate := admit.GateOf(7, "Acme")
	d := admit.Decide(&admit.Input{
		Now: start, Room: 10,
		Gates:   []admit.Gate{{ID: gate, Limit: semaphore(7, 5), Used: 2, Depth: 11}},
		Lanes:   []admit.Lane{{ID: 1, Ours: true}},
		Waiters: waiters(gate, 1, 1, 6),
	})
	require.Equal(t, []uuid.UUID{runID(1), runID(2), runID(3)}, admitted(d))
	require.Equal(t, []admit.Permit{{Gate: gate, Weight: 3, Until: store.UntilSettled, Runs: []uuid.UUID{runID(1), runID(2), runID(3)}}}, d.Permits)
	require.Empty(t, d.Turns, "no place is left: a release inserts the turn")
}
