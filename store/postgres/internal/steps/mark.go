package steps

import (
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// mark is where a process begins to look for notices. While a transaction holds an old snapshot,
// notices that were taken stay in the index, and every look from the beginning steps over all of
// them. A notice that was committed late is before the mark: looks from the beginning find it,
// which take about a twentieth of the time. As long as they are quick, and until this process has
// taken many notices, all looks are such.
type mark struct {
	mu    sync.Mutex
	since time.Time     // by the store's clock
	whole time.Duration // when the next look from the beginning may be, by the process's clock
	taken int           // notices, since a look from the beginning was quick
}

const (
	markBehind = 2 * time.Second // within which notices are usually committed, and clocks agree
	wholeQuick = 10 * time.Millisecond
	wholeShare = 20
	wholeMost  = 5 * time.Second // between looks from the beginning
	manyTaken  = 5000
)

// look is one look for notices.
type look struct {
	since time.Time     // the zero time: from the beginning
	began time.Duration // by the process's clock
	until time.Duration // until the next look from the beginning; zero: this is one
}

// ahead is what a look has left.
type ahead struct {
	now  time.Time
	due  *time.Time    // of the first notice; nil: there is none
	took time.Duration // to look

	taken int
}

// next is after how long there is something to look for; negative: there is nothing.
func (l look) next(seen ahead) time.Duration {
	next := time.Duration(-1)
	if seen.due != nil {
		next = max(seen.due.Sub(seen.now), 0)
	}
	if l.until > 0 && (next < 0 || l.until < next) {
		next = l.until
	}
	return next
}

func (m *mark) begin() look {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := look{began: lease.Elapsed()}
	if l.began < m.whole {
		l.since, l.until = m.since, m.whole-l.began
	}
	return l
}

// end moves the mark to the first notice that a look has left. It may not be where a notice is yet to
// be stored, so it stays behind the time.
func (m *mark) end(l look, seen ahead) {
	since := seen.now.Add(-markBehind)
	if seen.due != nil && seen.due.Before(since) {
		since = *seen.due
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since = since
	m.taken += seen.taken
	switch {
	case l.until > 0:
	case seen.took < wholeQuick:
		m.taken = 0
	case m.taken >= manyTaken:
		m.whole = lease.Elapsed() + min(wholeShare*seen.took, wholeMost)
	}
}
