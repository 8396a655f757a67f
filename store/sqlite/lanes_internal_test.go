package sqlite

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLanesThatAreRememberedAreBounded(t *testing.T) {
	t.Parallel()
	known := newLanes()
	for i := range lanesMost + 500 {
		known.add(&lanes{byName: map[laneName]int64{{queue: "invented-" + strconv.Itoa(i), job: "mail"}: int64(i)}})
	}
	require.Len(t, known.byName, lanesMost)
}
