package verify

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever is done when, the last of it is remembered, in its order, and no more than allowed.
func TestLately_HoldsTheLast(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		l := lately{span: 10 * time.Second, most: 20, bytes: 100}
		var at []time.Duration
		var sizes []int
		now, slow := time.Duration(0), 1+random.IntN(4000)
		for i := range random.IntN(200) {
			now += time.Duration(random.IntN(slow)) * time.Millisecond
			at, sizes = append(at, now), append(sizes, random.IntN(12))
			l.add(now, Run{Claimed: i}, sizes[i])
		}
		all := l.all()
		require.LessOrEqual(t, len(all), 40)
		bytes := 0
		for i, one := range all {
			require.Equal(t, len(at)-len(all)+i, one.Claimed, "seed %d", seed)
			bytes += sizes[one.Claimed]
		}
		require.LessOrEqual(t, bytes, 200, "seed %d", seed)
		if forgotten := len(at) - len(all) - 1; forgotten >= 0 {
			require.True(t, len(all) >= 20 || bytes+sizes[forgotten] > 100 || now-at[forgotten] > 10*time.Second,
				"seed %d: thing %d of %d was forgotten too early", seed, forgotten, len(at))
		}
	}
}

func TestLately_ForgetsNothingWhileNothingIsSettled(t *testing.T) {
	l := lately{span: time.Second, most: 10, bytes: 10}
	l.add(0, Run{Claimed: 1}, 1)
	l.add(time.Hour, Run{Claimed: 2}, 1)
	require.Equal(t, []Run{{Claimed: 1}, {Claimed: 2}}, l.all())
}
