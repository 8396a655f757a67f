package postgres

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
)

func TestLaneCacheIsBounded(t *testing.T) {
	t.Parallel()
	cache := laneCache{ids: map[lane]durable.LaneID{}}
	for i := range laneCacheMost + 500 {
		one := lane{queue: "invented-" + strconv.Itoa(i), job: "mail"}
		cache.remember(laneSet{one: durable.LaneID(i)})
		require.Equal(t, durable.LaneID(i), cache.ids[one], "what was learnt last is known")
	}
	require.Len(t, cache.ids, laneCacheMost)
	large := laneSet{}
	for i := range laneCacheMost + 1 {
		large[lane{queue: "large-" + strconv.Itoa(i), job: "mail"}] = durable.LaneID(i)
	}
	cache.remember(large)
	require.Len(t, cache.ids, len(large), "one call finds all of its own")
}
