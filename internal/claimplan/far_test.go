package claimplan_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/claimplan"
	"github.com/durable-worker/durable-worker/store"
)

// farHead is the head of a run that is due further away than a duration can say.
func farHead(lane store.LaneID, year int) store.Head {
	at := time.Date(year, 12, 31, 23, 59, 59, 0, time.UTC)
	return store.Head{Lane: lane, Queue: "default", Job: "job", Waiting: true, DueAt: at, In: at.Sub(epoch), After: time.Second}
}

func TestPlan_ARunAtTheEndOfTimeIsNotDue(t *testing.T) {
	for _, now := range []time.Duration{0, time.Hour, 100 * 365 * 24 * time.Hour} {
		p := claimplan.New(16 << 20)
		p.SetHeads(p.Read(now), []store.Head{farHead(1, 9999), farHead(-2, 9999)}, now, time.Minute)
		require.Empty(t, p.Ask(5, noCap).Steps)
		require.Empty(t, p.Isolated())
		require.Greater(t, p.Sleep(), time.Duration(math.MaxInt64)/2)
		require.Equal(t, time.Minute, p.SleepUnread(now, -1), "until the heads are to be read")
	}
}

// The store's time follows from a head that says how far it is from it, and from no other: a
// lane in which nothing is due would be searched from a wrong instant on.
func TestPlan_ARunAtTheEndOfTimeDoesNotShowTheStoresTime(t *testing.T) {
	readAbove := func(heads ...store.Head) map[store.LaneID]time.Time {
		p := claimplan.New(16 << 20)
		p.SetHeads(p.Read(0), heads, time.Second, time.Minute) // took a second: the next reads start at the marks
		return p.Read(2 * time.Second).From
	}
	idle := store.Head{Lane: 3}
	require.Empty(t, readAbove(farHead(1, 9999), idle))
	require.Equal(t, epoch, readAbove(farHead(1, 9999), futureHead(2, time.Hour), idle)[3])
	past := farHead(1, 1970)
	past.In = math.MinInt64
	require.Equal(t, map[store.LaneID]time.Time{1: past.DueAt, 3: epoch}, readAbove(past, idle, futureHead(-2, time.Hour)))
}

func TestPlan_AnIsolatedRunThatIsDueSinceTheBeginningWaitsForLong(t *testing.T) {
	p := planned(farHead(-1, 1970))
	require.Greater(t, p.IsolatedFor(time.Hour), 50*365*24*time.Hour)
	past := farHead(-1, 1970)
	past.In = math.MinInt64
	p = planned(past)
	require.Equal(t, time.Duration(math.MaxInt64), p.IsolatedFor(time.Hour))
}
