package claimplan

import "time"

// reach decides whether the heads are read from the beginning of the lanes or
// from their marks on. Only the first finds what has appeared below a mark: a
// run with a due instant in the past, or one whose transaction took long. It is
// cheap, and then always done, unless an old snapshot keeps the database from
// removing what was claimed since: then it costs more the longer that lasts. So
// it pauses belowRest times as long as it took beyond a read from the marks on,
// at most belowMost.
type reach struct {
	above time.Duration // what a read from the marks on took last
	until time.Duration // no read below the marks before this instant
}

const (
	belowRest = 20
	belowMost = 30 * time.Second
)

// below reports whether to read below the marks.
func (r *reach) below(now time.Duration) bool { return now >= r.until }

// tookBelow records how long a read below the marks took.
func (r *reach) tookBelow(now, took time.Duration) {
	r.until = now + min(belowRest*max(took-r.above, 0), belowMost)
}

// tookAbove records how long a read from the marks on took.
func (r *reach) tookAbove(took time.Duration) { r.above = took }
