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
	require.Equal(t, time.Minute, s.Put("a", 0))
	require.Equal(t, []string{"a"}, s.Resting(59*time.Second))
	require.Empty(t, s.Resting(time.Minute), "it is tried again")
	require.Equal(t, 2*time.Minute, s.Put("a", time.Minute))
	now := time.Minute
	for range 10 {
		now += s.Put("a", now)
	}
	require.Equal(t, aside.Longest, s.Put("a", now))
	require.Equal(t, time.Minute, s.Put("b", now), "each has a pause of its own")
	now += 3 * time.Hour
	require.Equal(t, time.Minute, s.Put("a", now), "it has not failed for long")
	for i := range 3000 {
		s.Put(string(rune(i+300)), now)
	}
	require.LessOrEqual(t, len(s.Resting(now)), 1000)
}
