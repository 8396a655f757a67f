package settling

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/postgres/internal/wake"
)

// While runs wait for the places that others leave, a worker settles and claims in turns. It
// then sends both in one transaction, which hands the places on (see queries.HandOn): the
// settle wakes a worker of its process before it is sent, and waits for that worker's claim.
// A settle that meets no claim is sent on its own, and wakes workers afterwards. So is each of
// the two if the database refuses both.

const (
	// handWait is the longest that a settle waits for a claim.
	handWait = 5 * time.Millisecond
	// handFor is how long places are handed on after an admission from the same line has
	// decided about all that waits: it bounds for how long runs that are not eligible are skipped.
	handFor = 50 * time.Millisecond
	// handRest is how long none is handed on after a settle has waited in vain, for the first
	// time; handRestMost after many times in a row.
	handRest     = 10 * time.Millisecond
	handRestMost = time.Second
	// handMost bounds the claims, and the lines, that are remembered.
	handMost = 10_000
)

// handing is what is known of the places that can be handed on.
type handing struct {
	settles joining
	wait    time.Duration // the longest that a settle waits for a claim
	fresh   time.Duration // how long places are handed on after an admission from the same line

	mu      sync.Mutex
	claims  map[lease.ClaimID][]store.LineID // for whose places runs waited, and the lines of their turns
	decided map[store.LineID]time.Duration   // monotonic clock: when an admission from the line has decided
	rest    time.Duration                    // after a settle has waited in vain; zero: the last one has not
	until   time.Duration                    // monotonic clock: the end of that
}

// decide records that an admission from lines has decided about all that waits.
func (h *handing) decide(lines []store.LineID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.decided) >= handMost || h.decided == nil {
		h.decided = map[store.LineID]time.Duration{}
	}
	for _, line := range lines {
		h.decided[line] = lease.Elapsed()
	}
}

// longest is the longest that a settle waits for a claim.
func (h *handing) longest() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wait
}

// met records whether a settle has met a claim that has started runs.
func (h *handing) met(yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if yes {
		h.rest = 0
		return
	}
	h.rest = min(max(2*h.rest, handRest), handRestMost)
	h.until = lease.Elapsed() + h.rest
}

// expect remembers that runs wait for the places of a claim.
func (h *handing) expect(claim lease.ClaimID, lines []store.LineID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.claims) >= handMost || h.claims == nil {
		h.claims = map[lease.ClaimID][]store.LineID{}
	}
	h.claims[claim] = lines
}

// lines returns the lines of the places that a settle frees for runs that wait; none while the
// last settles have waited in vain, and when it is time for an admission from one of them.
func (h *handing) lines(work []*settling) (lines []store.LineID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range work {
		lines = append(lines, h.claims[w.Claim]...)
		if w.Last {
			delete(h.claims, w.Claim)
		}
	}
	now := lease.Elapsed()
	if now < h.until || slices.ContainsFunc(lines, func(line store.LineID) bool {
		at, known := h.decided[line]
		return !known || now-at >= h.fresh
	}) {
		return nil
	}
	return lines
}

// HandOnWithin has a settle wait so long for a claim, and places be handed on for so long after an
// admission from the same line has decided about all that waits.
func (s *Settler) HandOnWithin(wait, fresh time.Duration) {
	s.handing.mu.Lock()
	defer s.handing.mu.Unlock()
	s.handing.wait, s.handing.fresh = wait, fresh
	s.handing.rest, s.handing.until = 0, 0
}

// SettlesThatWait is how many settles wait to hand places on.
func (s *Settler) SettlesThatWait() int {
	s.handing.settles.mu.Lock()
	defer s.handing.settles.mu.Unlock()
	return len(s.handing.settles.waiting)
}

// HandsOn reports whether the places of a claim are to be handed on.
func (s *Settler) HandsOn(claim lease.ClaimID) bool {
	s.handing.mu.Lock()
	defer s.handing.mu.Unlock()
	return len(s.handing.claims[claim]) > 0
}

// ExpectHandOn remembers that runs wait in these lines for the places of a claim.
func (s *Settler) ExpectHandOn(claim lease.ClaimID, lines []store.LineID) {
	s.handing.expect(claim, lines)
}

// DecidedOn records that an admission from lines has decided about all that waits.
func (s *Settler) DecidedOn(lines []store.LineID) { s.handing.decide(lines) }

// joinHandOn settles together with a claim that starts runs in the places that become free,
// and reports whether that has succeeded. If not, what was settled is not known.
func (s *Settler) joinHandOn(ctx context.Context, work []*settling) bool {
	lines := s.handing.lines(work)
	if len(lines) == 0 || !allPlain(work) {
		return false
	}
	one := s.handing.settles.add(work)
	dues := wake.DuesOn(lines)
	for i := range dues {
		dues[i].Unseen = true
	}
	s.wake.GiveDue(dues)
	done := s.handing.settles.await(ctx, one, s.handing.longest())
	s.handing.met(done && one.started > 0)
	if !done || one.started == 0 {
		return done
	}
	for _, w := range work {
		w.wanted, w.blocked = without(w.wanted, one.handed), without(w.blocked, one.handed)
	}
	return true
}

func without(lines, handed []store.LineID) []store.LineID {
	return slices.DeleteFunc(lines, func(line store.LineID) bool { return slices.Contains(handed, line) })
}
