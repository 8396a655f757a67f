// Package saturate calculates with durations that may be as long as any: what does not fit
// becomes the longest duration there is, or the longest one back.
//
// A duration holds 292 years, and a run may be due in the year 9999. A difference of two
// instants is already cut to what fits (time.Time.Sub); a sum of durations, and a multiple of
// one, is not: it wraps around, and what was far in the future is in the past.
package saturate

import (
	"math"
	"time"
)

// The longest durations.
const (
	Longest     = time.Duration(math.MaxInt64)
	LongestBack = time.Duration(math.MinInt64)
)

// Add is the sum of two durations.
func Add(a, b time.Duration) time.Duration {
	sum := a + b
	switch {
	case b > 0 && sum < a:
		return Longest
	case b < 0 && sum > a:
		return LongestBack
	default:
		return sum
	}
}

// Scale is a duration times a factor, which is a number.
func Scale(d time.Duration, factor float64) time.Duration {
	switch product := float64(d) * factor; {
	case product >= float64(Longest): // which float64 rounds up, beyond what a duration holds
		return Longest
	case product <= float64(LongestBack):
		return LongestBack
	default:
		return time.Duration(product)
	}
}

// Times is a multiple of a duration; n is not negative.
func Times(n int, d time.Duration) time.Duration {
	switch {
	case n <= 0 || d == 0:
		return 0
	case d > Longest/time.Duration(n):
		return Longest
	case d < LongestBack/time.Duration(n):
		return LongestBack
	default:
		return time.Duration(n) * d
	}
}
