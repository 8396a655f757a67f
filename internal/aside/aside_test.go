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

func TestDoubt(t *testing.T) {
	var s aside.Set[string]
	pause, blamed := s.Doubt("a", time.Minute)
	require.Equal(t, aside.Doubtful, pause)
	require.False(t, blamed, "nothing may be taken at all")
	require.Equal(t, []string{"a"}, s.Resting(time.Minute+aside.Doubtful-1))
	require.Empty(t, s.Resting(time.Minute+aside.Doubtful))
	s.Took(time.Minute + 1)
	pause, blamed = s.Doubt("a", 2*time.Minute)
	require.True(t, blamed, "something else was taken meanwhile")
	require.Equal(t, aside.First, pause)
	require.Equal(t, 2*aside.First, s.Put("a", 3*time.Minute))
}

func TestDoubtComesToAnEnd(t *testing.T) {
	var s aside.Set[string]
	now, times := time.Minute, 0
	for blamed := false; !blamed; times++ {
		require.Less(t, times, 10)
		var pause time.Duration
		pause, blamed = s.Doubt("a", now)
		now += pause
	}
	for range 20 {
		pause, blamed := s.Doubt("a", now)
		require.True(t, blamed)
		require.Equal(t, aside.First, pause, "it does not grow while nothing else is taken")
		now += pause
	}
	require.Equal(t, aside.First, s.Put("a", now), "the first time that it is to blame")
}
