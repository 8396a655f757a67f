package protocol

import (
	"bytes"
	"container/heap"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/lease"
)

// Beat decides when the leases of one holder are renewed together, and when
// each of them is lost.
//
// Invariant: a held lease is renewed or declared lost before its deadline,
// which lies before the store's expiry (lease.Terms.Deadline), whatever the
// store answers or does not answer.
type Beat struct {
	Terms lease.Terms

	held    map[lease.ClaimID]*hold
	order   deadlines       // the same, the first that is lost first
	asked   []lease.ClaimID // of the renewal in flight; nil: none is
	askedAt time.Duration   // when it was sent
	next    time.Duration   // when the next renewal is due; meaningless while nothing is held
	fresh   time.Duration   // first beat of what came to be held during the renewal in flight; negative: nothing did
}

// hold is one held lease.
type hold struct {
	claim    lease.ClaimID
	deadline time.Duration // local
	index    int           // in the order
	ending   bool          // the store may have ended it, at the holder's own request
}

// deadlines is a heap.Interface.
type deadlines []*hold

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].deadline < d[j].deadline }

func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push is for package heap.
func (d *deadlines) Push(x any) {
	h := x.(*hold) //nolint:forcetypeassert // nothing else is pushed
	h.index = len(*d)
	*d = append(*d, h)
}

// Pop is for package heap.
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	h := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return h
}

// BeatKind names an event of Beat.
type BeatKind int8

// The events of Beat.
const (
	BeatTick     BeatKind = iota // time has passed
	BeatHeld                     // Claim was granted by a request sent at Asked; never answered with Renew
	BeatDropped                  // Claim is held no longer, by the holder's own will; likewise
	BeatEnding                   // the holder asks the store to end Claim: that it is missing from an answer is no loss; likewise
	BeatAnswered                 // the renewal in flight was answered: Claims were renewed, of Unknown nothing is known
	BeatFailed                   // the renewal in flight failed; nothing is known
)

// BeatEvent is one event. At is the instant it is handled, never falling.
type BeatEvent struct {
	Kind    BeatKind
	At      time.Duration
	Claim   lease.ClaimID
	Asked   time.Duration
	Claims  []lease.ClaimID
	Unknown []lease.ClaimID
	Random  float64       // in [0, 1), spreads the retry after BeatFailed, and after BeatAnswered with Unknown
	Late    time.Duration // by how much a renewal is answered later than it could be, because goroutines wait for a CPU
}

// BeatEffects is what the holder has to do.
type BeatEffects struct {
	Renew []lease.ClaimID // send one renewal for these, in this order; at most one is in flight
	Lost  []lease.ClaimID // stop their work now
	Wake  time.Duration   // next BeatTick at the latest; negative: none needed
}

// Deadline returns the local deadline of a held lease, and whether it is held.
func (b *Beat) Deadline(claim lease.ClaimID) (time.Duration, bool) {
	h, ok := b.held[claim]
	if !ok {
		return 0, false
	}
	return h.deadline, true
}

// Step handles one event.
func (b *Beat) Step(e BeatEvent) BeatEffects {
	var effects BeatEffects
	switch e.Kind {
	case BeatTick:
	case BeatHeld:
		b.hold(e)
	case BeatDropped:
		b.drop(e.Claim)
	case BeatEnding:
		if h, held := b.held[e.Claim]; held {
			h.ending = true
		}
	case BeatAnswered:
		effects.Lost = b.answered(e)
	case BeatFailed:
		b.next, b.asked = b.retry(e), nil
	}
	effects.Lost = append(effects.Lost, b.expire(e.At)...)
	sends := e.Kind == BeatTick || e.Kind == BeatAnswered || e.Kind == BeatFailed
	if sends && len(b.held) > 0 && b.asked == nil && e.At >= b.due(e.Late) {
		b.asked, b.askedAt, b.fresh = b.claims(), e.At, -1
		effects.Renew = b.asked
	}
	effects.Wake = b.wake(e.Late)
	return effects
}

// due is when the next renewal is sent: sooner where it will be answered late, but not more
// often than ten times in a lease.
func (b *Beat) due(late time.Duration) time.Duration {
	if late <= 0 {
		return b.next
	}
	return min(b.next, max(b.next-late, b.askedAt+b.Terms.Duration/10))
}

func (b *Beat) hold(e BeatEvent) {
	if b.held == nil {
		b.held = map[lease.ClaimID]*hold{}
	}
	first := e.Asked + b.Terms.Heartbeat
	switch {
	case b.asked != nil && (b.fresh < 0 || first < b.fresh):
		b.fresh = first
	case b.asked == nil && (len(b.held) == 0 || first < b.next):
		b.next = first
	}
	b.drop(e.Claim)
	h := &hold{claim: e.Claim, deadline: b.Terms.Deadline(e.Asked)}
	b.held[e.Claim] = h
	heap.Push(&b.order, h)
}

// drop holds a lease no longer, if it was held.
func (b *Beat) drop(claim lease.ClaimID) {
	if h, held := b.held[claim]; held {
		delete(b.held, claim)
		heap.Remove(&b.order, h.index)
	}
}

// answered moves the deadlines of what was renewed, counted from before the
// renewal was sent, and returns what was asked for and is gone. What came to be
// held meanwhile has its own first beat.
func (b *Beat) answered(e BeatEvent) (lost []lease.ClaimID) {
	renewed := make(map[lease.ClaimID]bool, len(e.Claims)+len(e.Unknown))
	for _, claim := range e.Unknown {
		renewed[claim] = false
	}
	for _, claim := range e.Claims {
		renewed[claim] = true
	}
	for _, claim := range b.asked {
		h, held := b.held[claim]
		confirmed, mentioned := renewed[claim]
		switch {
		case !held, mentioned && !confirmed:
		case confirmed:
			h.deadline = b.Terms.Deadline(b.askedAt)
		case h.ending:
		default:
			delete(b.held, claim)
			lost = append(lost, claim)
		}
	}
	b.reorder()
	b.next = b.askedAt + b.Terms.Heartbeat
	if b.fresh >= 0 {
		b.next = min(b.next, b.fresh)
	}
	if len(e.Unknown) > 0 {
		b.next = min(b.next, b.retry(e))
	}
	b.asked = nil
	return lost
}

// retry is when to try again what has failed.
func (b *Beat) retry(e BeatEvent) time.Duration {
	return e.At + time.Duration(float64(b.Terms.Duration)/10*(0.75+0.5*e.Random))
}

// reorder sorts the order again, when many deadlines have moved.
func (b *Beat) reorder() {
	b.order = b.order[:0]
	for _, h := range b.held {
		h.index = len(b.order)
		b.order = append(b.order, h)
	}
	clear(b.order[len(b.order):cap(b.order)])
	heap.Init(&b.order)
}

func (b *Beat) expire(now time.Duration) (lost []lease.ClaimID) {
	for len(b.order) > 0 && now >= b.order[0].deadline {
		claim := b.order[0].claim
		b.drop(claim)
		lost = append(lost, claim)
	}
	slices.SortFunc(lost, compareClaims)
	return lost
}

func (b *Beat) wake(late time.Duration) time.Duration {
	switch {
	case len(b.order) == 0:
		return -1
	case b.asked == nil:
		return min(b.order[0].deadline, b.due(late))
	default:
		return b.order[0].deadline
	}
}

func (b *Beat) claims() []lease.ClaimID {
	claims := make([]lease.ClaimID, 0, len(b.held))
	for claim := range b.held {
		claims = append(claims, claim)
	}
	slices.SortFunc(claims, compareClaims)
	return claims
}

func compareClaims(a, b lease.ClaimID) int { return bytes.Compare(a[:], b[:]) }
