package aside_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/aside"
)

func TestSet(t *testing.T) {
	var s aside.Set[string]
	require.Empty(t, s.Resting(0))
	require.NotNil(t, s.Resting(0))
	require.Equal(t, aside.First, s.Put("a", 0))
	require.Equal(t, []string{"a"}, s.Resting(aside.First-1))
	require.Empty(t, s.Resting(aside.First), "it is tried again")
	require.Equal(t, 2*aside.First, s.Put("a", aside.First))
	now := aside.First
	for range 10 {
		now += s.Put("a", now)
	}
	require.Equal(t, aside.Longest, s.Put("a", now))
	require.Equal(t, aside.First, s.Put("b", now), "each has a pause of its own")
	now += 3 * time.Hour
	require.Equal(t, aside.First, s.Put("a", now), "it has not failed for long")
	for i := range 3000 {
		s.Put(string(rune(i+300)), now)
	}
	require.LessOrEqual(t, len(s.Resting(now)), 1000)
}
