package cron

import (
	"hash/fnv"
	"time"
)

// Share is a part of d, in whole microseconds and below d, that follows from a
// text alone.
func Share(d time.Duration, text string) time.Duration {
	if d < time.Microsecond {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	mixed := h.Sum64() // FNV leaves the upper bits of short texts alike
	mixed ^= mixed >> 33
	mixed *= 0xff51afd7ed558ccd
	mixed ^= mixed >> 33
	return time.Duration(mixed%uint64(d.Microseconds())) * time.Microsecond //nolint:gosec // positive, and below d
}
