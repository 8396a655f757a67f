package protocol

import (
	"bytes"
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

	held    map[lease.ClaimID]time.Duration // local deadline of each held lease
	asked   []lease.ClaimID                 // of the renewal in flight; nil: none is
	askedAt time.Duration                   // when it was sent
	next    time.Duration                   // when the next renewal is due; meaningless while nothing is held
}

// BeatKind names an event of Beat.
type BeatKind int8

// The events of Beat.
const (
	BeatTick     BeatKind = iota // time has passed
	BeatHeld                     // Claim was granted by a request sent at Asked; never answered with Renew
	BeatDropped                  // Claim is held no longer, by the holder's own will; likewise
	BeatAnswered                 // the renewal in flight was answered: Claims were renewed
	BeatFailed                   // the renewal in flight failed; nothing is known
)

// BeatEvent is one event. At is the instant it is handled, never falling.
type BeatEvent struct {
	Kind   BeatKind
	At     time.Duration
	Claim  lease.ClaimID
	Asked  time.Duration
	Claims []lease.ClaimID
	Random float64 // in [0, 1), spreads the retry after BeatFailed
}

// BeatEffects is what the holder has to do.
type BeatEffects struct {
	Renew []lease.ClaimID // send one renewal for these, in this order; at most one is in flight
	Lost  []lease.ClaimID // stop their work now
	Wake  time.Duration   // next BeatTick at the latest; negative: none needed
}

// Deadline returns the local deadline of a held lease, and whether it is held.
func (b *Beat) Deadline(claim lease.ClaimID) (time.Duration, bool) {
	deadline, ok := b.held[claim]
	return deadline, ok
}

// Step handles one event.
func (b *Beat) Step(e BeatEvent) BeatEffects {
	var effects BeatEffects
	switch e.Kind {
	case BeatTick:
	case BeatHeld:
		b.hold(e)
	case BeatDropped:
		delete(b.held, e.Claim)
	case BeatAnswered:
		effects.Lost = b.answered(e)
	case BeatFailed:
		b.next = e.At + time.Duration(float64(b.Terms.Duration)/10*(0.75+0.5*e.Random))
		b.asked = nil
	}
	effects.Lost = append(effects.Lost, b.expire(e.At)...)
	sends := e.Kind != BeatHeld && e.Kind != BeatDropped
	if sends && len(b.held) > 0 && b.asked == nil && e.At >= b.next {
		b.asked, b.askedAt = b.claims(), e.At
		effects.Renew = b.asked
	}
	effects.Wake = b.wake()
	return effects
}

func (b *Beat) hold(e BeatEvent) {
	if b.held == nil {
		b.held = map[lease.ClaimID]time.Duration{}
	}
	if first := e.Asked + b.Terms.Heartbeat; len(b.held) == 0 && b.asked == nil || first < b.next {
		b.next = first
	}
	b.held[e.Claim] = b.Terms.Deadline(e.Asked)
}

// answered moves the deadlines of what was renewed, counted from before the
// renewal was sent, and returns what was asked for and is gone.
func (b *Beat) answered(e BeatEvent) (lost []lease.ClaimID) {
	renewed := make(map[lease.ClaimID]bool, len(e.Claims))
	for _, claim := range e.Claims {
		renewed[claim] = true
	}
	for _, claim := range b.asked {
		if _, held := b.held[claim]; !held {
			continue
		}
		if renewed[claim] {
			b.held[claim] = b.Terms.Deadline(b.askedAt)
		} else {
			delete(b.held, claim)
			lost = append(lost, claim)
		}
	}
	b.next = b.askedAt + b.Terms.Heartbeat
	b.asked = nil
	return lost
}

func (b *Beat) expire(now time.Duration) (lost []lease.ClaimID) {
	for claim, deadline := range b.held {
		if now >= deadline {
			delete(b.held, claim)
			lost = append(lost, claim)
		}
	}
	slices.SortFunc(lost, compareClaims)
	return lost
}

func (b *Beat) wake() time.Duration {
	wake := time.Duration(-1)
	for _, deadline := range b.held {
		if wake < 0 || deadline < wake {
			wake = deadline
		}
	}
	if wake >= 0 && b.asked == nil {
		wake = min(wake, b.next)
	}
	return wake
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
