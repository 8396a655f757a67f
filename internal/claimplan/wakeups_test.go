package claimplan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/claimplan"
	"github.com/durable-worker/durable-worker/store"
)

func TestWakeUps_AreTakenOnce(t *testing.T) {
	var u claimplan.WakeUps
	require.Equal(t, time.Duration(-1), u.Next(0))
	u.AddAnywhere()
	u.Add(store.Due{Lane: 1, Runs: 1})
	u.Add(store.Due{Lane: 1, Runs: 2})
	u.Expect(3 * time.Second)
	u.Expect(5 * time.Second)
	require.Equal(t, 2*time.Second, u.Next(time.Second))
	require.Equal(t, claimplan.Woken{Anywhere: true, Lanes: map[store.LaneID]store.Due{1: {Lane: 1, Runs: 2}}}, u.Take(time.Second))
	require.Zero(t, u.Next(4*time.Second))
	require.True(t, u.Take(4*time.Second).Later)
	woken := u.Take(5 * time.Second)
	require.False(t, woken.Anywhere || woken.Later)
	require.Empty(t, woken.Lanes)
}

func TestWakeUps_WatchALaneForAWhile(t *testing.T) {
	var u claimplan.WakeUps
	u.Watch(store.Due{Lane: 1, Every: 2 * time.Second}, 10*time.Second)
	u.Watch(store.Due{Lane: 2, Every: time.Second}, 5*time.Second)
	woken := u.Take(time.Second)
	require.Len(t, woken.Lanes, 2)
	require.Equal(t, time.Second, woken.Again)
	woken = u.Take(5 * time.Second)
	require.Len(t, woken.Lanes, 2, "once more at the end")
	require.Equal(t, 2*time.Second, woken.Again)
	woken = u.Take(10 * time.Second)
	require.Len(t, woken.Lanes, 1)
	require.Zero(t, woken.Again)
	require.Empty(t, u.Take(11*time.Second).Lanes)
}

func TestWakeUps_AWatchThatIsLeftIsOver(t *testing.T) {
	var u claimplan.WakeUps
	u.Watch(store.Due{Lane: 1, Every: time.Second}, 10*time.Second)
	u.Watch(store.Due{Lane: 2, Every: time.Second}, 10*time.Second)
	require.True(t, u.Leave(1))
	require.False(t, u.Leave(1))
	require.False(t, u.Leave(3))
	require.Equal(t, map[store.LaneID]store.Due{2: {Lane: 2, Every: time.Second}}, u.Take(time.Second).Lanes)
}

func TestWakeUps_AWatchStaysOneForLimitedRuns(t *testing.T) {
	var u claimplan.WakeUps
	u.Watch(store.Due{Lane: 1, Every: time.Second, Limited: true}, 10*time.Second)
	u.Watch(store.Due{Lane: 1, Every: time.Second}, 5*time.Second)
	require.True(t, u.Take(time.Second).Lanes[1].Limited)
	require.True(t, u.Take(time.Second).Lanes[1].Mixed, "and looks for others, too")
	require.True(t, u.Take(6 * time.Second).Lanes[1].Limited)
	require.True(t, u.Take(10 * time.Second).Lanes[1].Limited, "the last look")
	require.Empty(t, u.Take(11*time.Second).Lanes)
}

func TestWakeUps_OfOneLaneJoinTheirKindsOfRuns(t *testing.T) {
	limited, plain, mixed := store.Due{Lane: 1, Limited: true}, store.Due{Lane: 1}, store.Due{Lane: 1, Limited: true, Mixed: true}
	for _, one := range []struct{ first, second, want store.Due }{
		{limited, limited, limited}, {plain, plain, plain}, {limited, plain, mixed}, {plain, limited, mixed}, {mixed, limited, mixed}, {plain, mixed, mixed},
	} {
		var u claimplan.WakeUps
		u.Add(one.first)
		u.Add(one.second)
		require.Equal(t, one.want, u.Take(0).Lanes[1])
		u.Watch(one.first, time.Second)
		u.Add(one.second)
		require.Equal(t, one.want, u.Take(time.Second).Lanes[1])
		require.Equal(t, one.want == one.first, one.first.Covers(one.second))
	}
}
