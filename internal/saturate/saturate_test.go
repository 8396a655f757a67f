package saturate_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/saturate"
)

// extremes are durations at which sums and multiples wrap around, and their neighbours.
func extremes() (all []time.Duration) {
	for _, d := range []time.Duration{saturate.LongestBack, saturate.LongestBack / 2, -time.Hour, 0, time.Second, saturate.Longest / 2, saturate.Longest} {
		all = append(all, d, saturate.Add(d, 1), saturate.Add(d, -1))
	}
	return all
}

// fitted is what is nearest to an exact number among durations.
func fitted(exact *big.Int) time.Duration {
	switch {
	case exact.Cmp(big.NewInt(int64(saturate.Longest))) > 0:
		return saturate.Longest
	case exact.Cmp(big.NewInt(int64(saturate.LongestBack))) < 0:
		return saturate.LongestBack
	default:
		return time.Duration(exact.Int64())
	}
}

func TestASumIsAsNearAsADurationCanBe(t *testing.T) {
	for _, a := range extremes() {
		for _, b := range extremes() {
			exact := new(big.Int).Add(big.NewInt(int64(a)), big.NewInt(int64(b)))
			require.Equal(t, fitted(exact), saturate.Add(a, b), "%d + %d", a, b)
		}
	}
}

func TestAScaledDurationNeitherWrapsAroundNorChangesItsSign(t *testing.T) {
	for _, d := range extremes() {
		for _, factor := range []float64{0, 0.5, 1, 1.2, 2, math.MaxFloat64} {
			scaled := saturate.Scale(d, factor)
			require.False(t, d > 0 && scaled < 0 || d < 0 && scaled > 0, "%d times %v is %d", d, factor, scaled)
			require.InDelta(t, math.Max(math.Min(float64(d)*factor, float64(saturate.Longest)), float64(saturate.LongestBack)), float64(scaled), 1)
		}
	}
}

func TestAMultipleIsAsNearAsADurationCanBe(t *testing.T) {
	for _, d := range extremes() {
		for _, n := range []int{0, 1, 2, 3, 20, 1 << 31} {
			exact := new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(int64(d)))
			require.Equal(t, fitted(exact), saturate.Times(n, d), "%d times %d", n, d)
		}
	}
}
