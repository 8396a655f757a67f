package admit

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// grant takes the places of one use of a run that is admitted.
func (d *deciding) grant(g *gate, w *waiting, use *Use) {
	if g == nil || g.Limit == nil || use.Mode == store.LimitRelease {
		return
	}
	k := d.need(g, w)
	if g.Limit.Rate() {
		if !g.unlimited() {
			d.charge(g, k)
		}
		return
	}
	weight := max(use.Weight, 1) // also where it counts as less: the release subtracts it
	switch until := use.lasting(); {
	case use.Owner != (uuid.UUID{}):
		expires := d.now.Add(use.OwnedFor)
		if g.freesAt.IsZero() || expires.Before(g.freesAt) {
			g.freesAt = expires
		}
		if d.granted[grantee{g.ID, use.Owner}] { // by another run of this admission
			d.extend(g.ID, use.Owner, expires)
			break
		}
		d.granted[grantee{g.ID, use.Owner}] = true
		d.Permits = append(d.Permits, Permit{Gate: g.ID, Weight: weight, Until: until, Owner: use.Owner, ExpiresAt: expires})
	case use.Has:
	case until == store.UntilSettled:
		if g.permit == 0 {
			d.Permits = append(d.Permits, Permit{Gate: g.ID, Until: until})
			g.permit = len(d.Permits)
		}
		p := &d.Permits[g.permit-1]
		p.Weight += weight
		p.Runs = append(p.Runs, w.Run)
	default:
		d.Permits = append(d.Permits, Permit{Gate: g.ID, Weight: weight, Until: until, Owner: w.Run, Runs: []store.RunID{w.Run}})
	}
	if !g.unlimited() {
		g.taken += k
	}
}

// extend lets a named owner have the permit that was decided for longer.
func (d *deciding) extend(gate GateID, owner uuid.UUID, expires time.Time) {
	for i := range d.Permits {
		if p := &d.Permits[i]; p.Gate == gate && p.Owner == owner && expires.After(p.ExpiresAt) {
			p.ExpiresAt = expires
		}
	}
}

func (u *Use) lasting() store.LimitUntil {
	use := store.LimitUse{Until: u.Until, Mode: u.Mode}
	return use.Lasting()
}

// charge takes starts of a rate.
func (d *deciding) charge(g *gate, k int) {
	g.rate, g.changed = g.rate.take(g.Limit, k, d.us), true
	if g.shared() {
		d.enliven(g)
	}
}

// refuse applies the action of a gate that has no room for a waiter in the line
// of g, which may be another gate or the same. It reports whether the waiter has
// left that line.
func (d *deciding) refuse(w *waiting, g, by *gate) bool {
	use := w.useOf(by.ID)
	action := store.FullWait
	if !by.closed(d.now) && use != nil {
		if action = use.WhenFull; action == store.FullDefault {
			action = by.Limit.Action()
		}
	}
	switch action {
	case store.FullRetry, store.FullDrop, store.FullFail:
		d.dismiss(w, use, by, action)
		g.acted = true
		return true
	}
	if by == g {
		return false
	}
	if w.parks(by.ID) {
		d.park(w.entry, g, by)
		return true
	}
	w.gone = true
	d.Moved = append(d.Moved, Moved{Waiter: *w.Waiter, To: by.ID})
	moved := &waiting{Waiter: w.Waiter, lane: w.lane, uses: w.uses, moved: true}
	moved.entry = d.entryOf(by.ID, w.lane)
	moved.home, moved.since = by.ID, w.DueAt
	d.insert(by, moved)
	return true
}

// insert puts a waiter that has come from another line into that of a gate.
func (d *deciding) insert(g *gate, w *waiting) {
	at, _ := slices.BinarySearchFunc(g.line, w, g.compareIn)
	g.line = slices.Insert(g.line, at, w)
	if at < g.next {
		g.next++
		g.ahead += d.need(g, w)
	}
}

// dismiss ends a waiter's wait for a gate that is full.
func (d *deciding) dismiss(w *waiting, use *Use, by *gate, action store.LimitAction) {
	w.gone = true
	r := Refused{Waiter: *w.Waiter, Action: action, By: by.ID}
	switch action {
	case store.FullRetry:
		r.State = store.Pending
		after := use.RetryAfter
		if after == 0 {
			after = by.Limit.RetryAfter
		}
		r.DueAt = d.now.Add(max(after, store.MinLimitRetry))
		d.Due = append(d.Due, Turn{Line: w.Lane, DueAt: r.DueAt, Gate: w.Gate})
	case store.FullDrop:
		r.State, r.Reason = store.Cancelled, fullReason(by.Limit)
	default:
		r.State, r.Reason = store.Dead, fullReason(by.Limit)
	}
	d.Refused = append(d.Refused, r)
}

func fullReason(l *store.Limit) string { return rules.Full(l.Name, l.Max) }

func (w *waiting) useOf(id GateID) *Use {
	for i := range w.uses {
		if w.uses[i].Gate == id {
			return &w.uses[i]
		}
	}
	return nil
}

// turn announces that the gate that is armed may have room for the waiters of a
// line, at the earliest instant that is found.
func (d *deciding) turn(line int32, id GateID, at time.Time) {
	for i := d.armed; i < len(d.Turns); i++ {
		if t := &d.Turns[i]; t.Line == line {
			if at.Before(t.DueAt) {
				t.DueAt = at
			}
			return
		}
	}
	d.Turns = append(d.Turns, Turn{Line: line, DueAt: at, Gate: id})
}
