package admit

import (
	"sync"

	"github.com/durable-worker/durable-worker/store"
)

// Tally counts, for each limit, what admissions of one process have done. It grows with the
// number of limits, not with that of their keys. The zero value is ready to be used.
type Tally struct {
	mu   sync.Mutex
	done map[store.LimitID]*store.LimitTally
}

// Decided counts a decision that has been committed.
func (t *Tally) Decided(d *Decision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range d.Admitted {
		w := &d.Admitted[i].Waiter
		if w.Uses == nil {
			t.of(w.Gate).Admitted++
			continue
		}
		seen := map[store.LimitID]bool{} // two gates may be of one limit
		for j := range w.Uses {
			if id := LimitOf(w.Uses[j].Gate); w.Uses[j].Mode != store.LimitRelease && !seen[id] {
				seen[id] = true
				t.of(w.Uses[j].Gate).Admitted++
			}
		}
	}
	for i := range d.Refused {
		t.of(d.Refused[i].By).Refused++
	}
}

// Admitted counts a run that was admitted to a gate without a decision.
func (t *Tally) Admitted(gate GateID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(gate).Admitted++
}

// Repaired counts gates at which something was as it must not be.
func (t *Tally) Repaired(gates []int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, gate := range gates {
		t.of(GateID(gate)).Repaired++
	}
}

// Of is what was counted for a limit.
func (t *Tally) Of(id store.LimitID) store.LimitTally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if done := t.done[id]; done != nil {
		return *done
	}
	return store.LimitTally{}
}

// of is the count of a gate's limit. The caller holds mu.
func (t *Tally) of(gate GateID) *store.LimitTally {
	id := LimitOf(gate)
	if t.done == nil {
		t.done = map[store.LimitID]*store.LimitTally{}
	}
	done := t.done[id]
	if done == nil {
		done = &store.LimitTally{}
		t.done[id] = done
	}
	return done
}
