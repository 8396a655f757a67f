package admit

import (
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// bucket is a token bucket as GCRA has it: a start each interval, and up to burst
// starts together after a pause. It counts in nanoseconds, as an interval in
// microseconds would make a bucket of 300,000 starts a second one of 250,000.
//
// Bound: in any time W no more than burst − 1 + ⌈W / interval⌉ starts. For at most
// L in any W with a burst of B, take an interval of W / (L − B + 1).
type bucket struct {
	interval int64 // rounded up
	burst    int64
	period   int64
}

// bucketOf is the bucket of a limit whose Max is not zero.
func bucketOf(l *store.Limit) bucket {
	period, rate := int64(l.Period), int64(max(l.Max, 1))
	return bucket{interval: max((period+rate-1)/rate, 1), burst: int64(max(l.Burst, 1)), period: period}
}

// ahead is how far after now the theoretical arrival time may lie: a full burst,
// and what was charged past the limit, a period of it at most.
func (b bucket) ahead() int64 { return b.period + b.burst*b.interval }

func (b bucket) clamp(tat, now int64) int64 { return min(tat, now+b.ahead()) }

// free is how many starts conform at now.
func (b bucket) free(tat, now int64) int {
	slack := now + (b.burst-1)*b.interval - max(tat, now)
	if slack < 0 {
		return 0
	}
	return int(slack/b.interval) + 1
}

// take is the theoretical arrival time after k starts.
func (b bucket) take(tat int64, k int, now int64) int64 {
	base := max(tat, now)
	return min(base+b.of(k), max(now+b.ahead(), base))
}

// next is the first instant at which k starts conform; of more than the burst,
// when a whole burst does.
func (b bucket) next(tat int64, k int, now int64) int64 {
	return max(tat-(b.burst-min(int64(k), b.burst))*b.interval, now)
}

// of is the time of k starts, of which there are never more than what clamp would
// leave.
func (b bucket) of(k int) int64 { return min(int64(k), b.ahead()/b.interval+1) * b.interval }

// refund gives back k of the starts of the latest admission: the theoretical
// arrival time is what it would be without them. Of an earlier admission nothing
// is given back. What came after it may have used what it left, which the state
// does not say, and the bound holds for the starts that have happened.
func (b bucket) refund(tat int64, k int, now int64) int64 {
	return max(tat-b.of(k), min(tat, now))
}

// gather is how many starts to wait for before a gate is asked again: those of 5
// ms, where starts are closer together than that.
func (b bucket) gather() int {
	const pause = int64(5 * time.Millisecond)
	return int(min((pause+b.interval-1)/b.interval, b.burst))
}
