package protocol

import "time"

// Takeover decides how far a worker may go when it reclaims expired leases, so
// that a jump of the store's clock or an outage of the store does not take
// runs away from owners that are alive and about to renew.
type Takeover struct {
	Hold       time.Duration // wait after a jump of the store's clock: min(L, 10 s)
	OutageHold time.Duration // wait after an outage of the store: min(L/3, 10 s)
	Slack      time.Duration // how far the store's clock may gain unnoticed

	known     bool
	store     time.Time     // the store's clock when last seen, as if it had not jumped
	seen      time.Duration // own clock then
	holdUntil time.Duration // a hold is on until this instant
	jumped    bool          // the hold is for a jump: the horizon keeps the old time
}

// Horizon returns the latest expiry that may be reclaimed at an instant, by
// the store's clock as it went before any jump; the zero time is no bound.
// ok is false while nothing may be reclaimed at all.
func (t *Takeover) Horizon(now time.Duration) (horizon time.Time, ok bool) {
	if now < t.holdUntil && !t.jumped {
		return time.Time{}, false
	}
	if !t.known {
		return time.Time{}, true
	}
	return t.store.Add(now - t.seen + t.Slack), true
}

// Seen takes in the store's clock as an answer told it. It reports by how much
// the clock jumped forward, or zero; a jump begins a hold.
func (t *Takeover) Seen(now time.Duration, store time.Time) (jump time.Duration) {
	expected := t.store.Add(now - t.seen)
	if t.known && store.Sub(expected) > t.Slack {
		if !t.jumped {
			t.jumped, t.holdUntil = true, now+t.Hold
			return store.Sub(expected)
		}
		if now < t.holdUntil {
			return 0
		}
	}
	t.known, t.jumped = true, false
	t.store, t.seen = store, now
	return 0
}

// Recovered begins a hold: the store answers again after an outage in which
// owners could not renew.
func (t *Takeover) Recovered(now time.Duration) {
	if !t.jumped {
		t.holdUntil = max(t.holdUntil, now+t.OutageHold)
	}
}
