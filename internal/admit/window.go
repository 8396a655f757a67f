package admit

import (
	"math"
	"slices"

	"github.com/durable-worker/durable-worker/store"
)

// exactMost is up to how many starts a sliding window remembers the instant of
// each.
const exactMost = 64

// window counts starts in parts of the period.
//
// Bounds: a fixed window, no more than most in each period counted from the epoch;
// a sliding one, no more than most in any half-open time as long as the period. A
// part is known by the last instant that it may hold, and counts in full while that
// instant is in the window. So it holds whatever the width of the parts was when
// they were written.
type window struct {
	most   int
	period int64 // µs
	part   int64 // µs; 1 where each instant is remembered
	fixed  bool
}

func windowOf(l *store.Limit) window {
	w := window{most: l.Max, period: l.Period.Microseconds()}
	switch {
	case l.Kind == store.LimitFixedWindow || l.Buckets == 1:
		w.fixed, w.part = true, w.period
	case l.Max <= exactMost:
		w.part = 1
	default:
		parts := int64(max(l.Buckets, 1))
		w.part = (w.period + parts - 1) / parts
	}
	return w
}

// partEnd is the last instant of the part that holds an instant.
func (w window) partEnd(now int64) int64 { return floor(now, w.part) + w.part - 1 }

// floor is the greatest multiple of the step that is not above the value.
func floor(value, step int64) int64 {
	value -= (value%step + step) % step
	return value
}

// leaves is when a part is no longer counted.
func (w window) leaves(at int64) int64 {
	if w.fixed {
		return floor(at, w.period) + w.period
	}
	return at + w.period
}

// current drops the parts that no window will count again, and brings back those
// that lie ahead of now.
func (w window) current(r Rate, now int64) Rate {
	end := w.partEnd(now)
	if len(r.At) == 0 || w.leaves(r.At[0]) > now && r.At[len(r.At)-1] <= end {
		return r
	}
	kept := Rate{TAT: r.TAT, Since: r.Since, LastAt: r.LastAt}
	for i, at := range r.At {
		at = min(at, end)
		switch last := len(kept.At) - 1; {
		case w.leaves(at) <= now:
		case last >= 0 && kept.At[last] == at:
			kept.Count[last] = sum32(kept.Count[last], r.Count[i])
		default:
			kept.At, kept.Count = append(kept.At, at), append(kept.Count, r.Count[i])
		}
	}
	return kept
}

// used is how many starts are counted now.
func (w window) used(r Rate, now int64) (used int) {
	for i, at := range r.At {
		if w.leaves(at) > now {
			used += int(r.Count[i])
		}
	}
	return used
}

func (w window) free(r Rate, most int, now int64) int { return max(most-w.used(r, now), 0) }

// take adds starts to the part of now.
func (w window) take(r Rate, k int, now int64) Rate {
	r = w.current(r, now).clone()
	end := w.partEnd(now)
	if last := len(r.At) - 1; last >= 0 && r.At[last] == end {
		r.Count[last] = sum32(r.Count[last], int32(min(k, store.MaxLimit)))
		return r
	}
	r.At, r.Count = append(r.At, end), append(r.Count, int32(min(k, store.MaxLimit)))
	for len(r.At) > w.parts() { // after a Charge past the limit, or a change of it
		r.Count[1] = sum32(r.Count[1], r.Count[0])
		r.At, r.Count = r.At[1:], r.Count[1:]
	}
	return r
}

// sum32 adds counts; past the largest, which only a Charge comes to, it stays there.
func sum32(a, b int32) int32 { return int32(min(int64(a)+int64(b), math.MaxInt32)) }

// parts is how many parts are remembered at most. More are added to later ones,
// which count longer.
func (w window) parts() int {
	if w.part == 1 {
		return exactMost
	}
	return int(w.period/w.part) + 2
}

// next is when so many parts have left that k of most are free.
func (w window) next(r Rate, most, k int, now int64) int64 {
	if most <= 0 {
		return never
	}
	surplus := w.used(r, now) + min(k, most) - most
	for i, at := range r.At {
		if surplus <= 0 {
			break
		}
		if leaves := w.leaves(at); leaves > now {
			if surplus -= int(r.Count[i]); surplus <= 0 {
				return leaves
			}
		}
	}
	return now
}

// refund gives back starts of the part that holds the instant at which they were
// charged. Of one that is counted no more there is nothing to give back.
func (w window) refund(r Rate, k int, charged int64) Rate {
	i, _ := slices.BinarySearch(r.At, charged)
	if i == len(r.At) || charged <= r.At[i]-w.part {
		return r
	}
	r = r.clone()
	r.Count[i] = max(r.Count[i]-int32(min(k, store.MaxLimit)), 0)
	return r
}
