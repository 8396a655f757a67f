package verify

import "time"

// lately holds the runs that were settled last: at least those of a span of time before the
// last one, and as many again, unless they or what they keep are too many. Nothing is
// forgotten while nothing is settled: what was settled before an outage is still there after
// it, however long it lasts.
type lately struct {
	span  time.Duration
	most  int // runs of each part
	bytes int // that these keep

	young, old part
}

// part is what was settled in a span of time. It is forgotten as a whole.
type part struct {
	runs  []Run
	bytes int
	since time.Duration
}

// add records a run that was settled at an instant and keeps so many bytes.
func (l *lately) add(now time.Duration, run Run, bytes int) {
	y := &l.young
	if len(y.runs) > 0 && (now-y.since > l.span || len(y.runs) >= l.most || y.bytes+bytes > l.bytes) {
		l.young, l.old = part{}, l.young
	}
	if len(y.runs) == 0 {
		y.since = now
	}
	y.runs, y.bytes = append(y.runs, run), y.bytes+bytes
}

// all returns the runs, the oldest first.
func (l *lately) all() []Run {
	runs := make([]Run, 0, len(l.old.runs)+len(l.young.runs))
	return append(append(runs, l.old.runs...), l.young.runs...)
}
