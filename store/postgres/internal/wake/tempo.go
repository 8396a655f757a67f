package wake

import "time"

// tempo estimates the time between events of one kind by an exponential moving average.
// The zero value has seen none.
type tempo struct {
	last time.Duration // monotonic clock; zero: none
	gap  time.Duration // the average; zero: unknown
}

// mark records an event. Only the part of the gap after since counts.
func (t *tempo) mark(now, since time.Duration) {
	gap := gapMost
	if t.last != 0 {
		gap = min(max(now-max(t.last, since), 0), gapMost)
	}
	if t.gap == 0 {
		t.gap = gap
	}
	t.gap += (gap - t.gap) / gapPart
	t.last = now
}

// often reports whether the next event is likely within watchGap.
func (t *tempo) often() bool { return t.gap != 0 && t.gap <= watchGap }

// every returns the pause between two claims of a watch at this tempo.
func (t *tempo) every() time.Duration {
	return min(max(t.gap*10/watchShare, watchOften), watchSeldom).Truncate(time.Millisecond)
}
