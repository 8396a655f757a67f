package postgres

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
)

func TestLaneCacheIsBounded(t *testing.T) {
	t.Parallel()
	cache := laneCache{ids: map[lane]store.LaneID{}}
	for i := range laneCacheMost + 500 {
		one := lane{queue: "invented-" + strconv.Itoa(i), job: "mail"}
		cache.remember(laneSet{one: store.LaneID(i)})
		require.Equal(t, store.LaneID(i), cache.ids[one], "what was learnt last is known")
	}
	require.Len(t, cache.ids, laneCacheMost)
	large := laneSet{}
	for i := range laneCacheMost + 1 {
		large[lane{queue: "large-" + strconv.Itoa(i), job: "mail"}] = store.LaneID(i)
	}
	cache.remember(large)
	require.Len(t, cache.ids, len(large), "one call finds all of its own")
}
