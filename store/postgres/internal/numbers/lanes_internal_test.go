package numbers

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

func TestLaneCacheIsBounded(t *testing.T) {
	t.Parallel()
	cache := laneCache{ids: map[Lane]store.LaneID{}}
	for i := range laneCacheMost + 500 {
		one := Lane{Queue: "invented-" + strconv.Itoa(i), Job: "mail"}
		cache.remember(LaneSet{one: store.LaneID(i)})
		require.Equal(t, store.LaneID(i), cache.ids[one], "what was learnt last is known")
	}
	require.Len(t, cache.ids, laneCacheMost)
	large := LaneSet{}
	for i := range laneCacheMost + 1 {
		large[Lane{Queue: "large-" + strconv.Itoa(i), Job: "mail"}] = store.LaneID(i)
	}
	cache.remember(large)
	require.Len(t, cache.ids, len(large), "one call finds all of its own")
}
