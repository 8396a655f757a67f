package protocol

import "time"

// Takeover decides whether, and how far, a worker may reclaim expired leases,
// so that neither a jump of the store's clock nor an outage takes runs away from
// owners that are alive and about to renew.
//
// An outage of writes alone is an outage: owners cannot renew, while every read
// says that all is well. So only a write that the store has taken counts as
// evidence, and what is decided rests on a chain of such writes, no two further
// apart than Gap. An owner that beats at least every half lease and retries a
// failed beat loses its lease only to an outage that is longer than half a lease.
// Such an outage cannot hide between two writes of an unbroken chain. A chain
// that is older than OutageHold has also left owners that long to settle what an
// outage before it kept them from settling. A worker that has not written yet,
// and one that has not written for longer than Gap, knows nothing and reclaims
// nothing.
type Takeover struct {
	Hold       time.Duration // wait after a jump of the store's clock: min(L, 10 s)
	OutageHold time.Duration // least age of the chain of writes: min(L/3, 10 s)
	Gap        time.Duration // longest time between two writes of a chain: L/2
	Slack      time.Duration // how far the store's clock may gain unnoticed

	known     bool
	store     time.Time     // the store's clock when last seen, as if it had not jumped
	seen      time.Duration // monotonic time then
	holdUntil time.Duration // a hold for a jump is on until this instant
	jumped    bool          // the horizon keeps the old time

	written bool          // the store has taken a write
	sent    time.Duration // when the latest write that it took was sent
	since   time.Duration // when the first write of the chain was answered
}

// Horizon returns the latest expiry that may be reclaimed at an instant, by
// the store's clock as it went before any jump; the zero time is no bound.
// ok is false while nothing may be reclaimed at all.
func (t *Takeover) Horizon(now time.Duration) (horizon time.Time, ok bool) {
	if !t.written || now-t.sent > t.Gap || now-t.since < t.OutageHold {
		return time.Time{}, false
	}
	if !t.known {
		return time.Time{}, true
	}
	return t.store.Add(now - t.seen + t.Slack), true
}

// Seen records the store's clock as an answer reported it. It returns by how much
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

// Wrote records a write that the store has accepted. It happened at some instant
// between the two: the time since the write before it is taken to be as long as
// it can have been.
func (t *Takeover) Wrote(sent, answered time.Duration) {
	if !t.written || answered-t.sent > t.Gap {
		t.since = answered
	}
	t.written, t.sent = true, max(t.sent, sent)
}

// Replaced records that another server answers than before: there was an outage, whether or
// not a call has failed. Owners have as long as after any other one.
func (t *Takeover) Replaced() { t.written = false }

// Unwritten returns for how long nothing is known to have been written.
func (t *Takeover) Unwritten(now time.Duration) time.Duration {
	if !t.written {
		return now
	}
	return now - t.sent
}

// Rest returns how long the chain of writes has yet to grow before anything may
// be reclaimed; zero when it is old enough, or when there is none.
func (t *Takeover) Rest(now time.Duration) time.Duration {
	if !t.written || now-t.sent > t.Gap {
		return 0
	}
	return max(t.since+t.OutageHold-now, 0)
}

// Resting returns for how long nothing, or nothing that has expired by a jump, may be
// reclaimed; zero when that is not so, or nothing is known of how long it will be.
func (t *Takeover) Resting(now time.Duration) time.Duration {
	rest := t.Rest(now)
	if t.jumped {
		rest = max(rest, t.holdUntil-now)
	}
	return max(rest, 0)
}
