package durable

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

// TestExpected_AreAnsweredOrPassedOn in virtual time.
func TestExpected_AreAnsweredOrPassedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var e expected
		began := time.Now()
		answered := make(chan store.LaneID, 2)
		add := func(lane store.LaneID, in, after time.Duration) bool {
			due := store.Due{Lane: lane, Runs: 1, In: in, After: after}
			return e.add(due, time.Since(began)+in, in+after, func() { answered <- lane })
		}
		require.True(t, add(1, time.Second, 0))
		require.True(t, add(2, 2*time.Second, 0))
		require.True(t, add(3, 3*time.Second, 0))
		require.True(t, add(4, 3*time.Second, time.Second), "one that another answers first")
		require.Equal(t, store.LaneID(1), <-answered)
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, store.LaneID(2), <-answered)
		left := e.end(time.Since(began))
		require.Equal(t, []store.Due{{Lane: 3, Runs: 1, In: time.Second}}, left)
		require.False(t, add(5, time.Second, 0), "it has ended")
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time of the bubble
		require.Empty(t, answered)
	})
	var many expected
	for range expectedMost {
		require.True(t, many.add(store.Due{}, 0, time.Hour, func() {}))
	}
	require.False(t, many.add(store.Due{}, 0, time.Hour, func() {}))
	require.Len(t, many.end(0), expectedMost)
}
