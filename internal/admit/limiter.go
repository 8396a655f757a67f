package admit

import "time"

// Taken is the answer to code outside of runs that asks a gate.
type Taken struct {
	OK   bool
	Rate Rate      // of a limit of starts: to be written, whether OK or not
	Next time.Time // not OK: when to ask again; the zero time: when a permit is released
}

// Take takes k starts of a limit of starts, or the places of a semaphore, for code
// outside of runs. Waiters have no precedence over it. Of a dynamic window, give
// the gate of its key and the one that all keys share: both are taken or none, and
// the answers come in their order.
func Take(now time.Time, k int, gates ...Gate) []Taken {
	w := &waiting{Waiter: &Waiter{}, lane: &Lane{Ours: true}}
	in := Input{Now: now, Gates: gates}
	for i := range gates {
		w.uses = append(w.uses, Use{Gate: gates[i].ID, Weight: k})
	}
	d := newDeciding(&in)
	ok := true
	for i := range gates {
		g := d.byID[gates[i].ID]
		ok = ok && !g.Busy && d.need(g, w) <= d.left(g)
	}
	answers := make([]Taken, len(gates))
	for i := range gates {
		g := d.byID[gates[i].ID]
		if ok {
			d.grant(g, w, &w.uses[i])
		} else if need := d.need(g, w); g.Busy {
			answers[i].Next = now.Add(BusyAgain)
		} else if at, known := d.enough(g, need); known && need > d.left(g) {
			answers[i].Next = at
		}
		answers[i].OK, answers[i].Rate = ok, g.rate
	}
	return answers
}

// Charge records k starts of a limit of starts that have happened already, also
// past the limit: those that follow wait longer.
func Charge(now time.Time, k int, gate Gate) Rate {
	rate := gate.Rate.current(gate.Limit, micros(now))
	for _, back := range gate.Refunds {
		rate = rate.refund(gate.Limit, back, micros(now))
	}
	return rate.take(gate.Limit, k, micros(now))
}
