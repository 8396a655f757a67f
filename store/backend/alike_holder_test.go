package backend_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// holderOf returns a run that a worker has claimed, or had claimed, and its holder on a
// store. ok is false while there is none.
func (h *history) holderOf() (id store.RunID, holder func(backend.Store) store.Holder, ok bool) {
	if len(h.held) == 0 {
		return id, nil, false
	}
	held := h.held[h.random.IntN(len(h.held))]
	id = held.runs[h.random.IntN(len(held.runs))]
	return id, func(s backend.Store) store.Holder {
		return store.Holder{Run: id, Claim: held.claims[slices.Index(h.stores, s)][id]}
	}, true
}

func (h *history) report() {
	id, holder, ok := h.holderOf()
	if !ok {
		return
	}
	fraction, note := float64(h.random.IntN(3))/2, one(h, "", "half", "ä")
	report := one(h, store.Report{Fraction: &fraction}, store.Report{Note: &note}, store.Report{Fraction: &fraction, Note: &note}, store.Report{Checkpoint: []byte(`{"n": 1}`)})
	h.each(fmt.Sprintf("report of %s: %+v", id, report), func(s backend.Store) any { return wordOf(s.Report(h.t.Context(), holder(s), report)) })
}

func (h *history) enqueueUnder() {
	id, holder, ok := h.holderOf()
	if !ok {
		return
	}
	runs := []store.NewRun{h.newRun(), h.newRun()}
	h.known = append(h.known, runs...)
	h.each("enqueue under "+id.String()+" "+h.ids(runs), func(s backend.Store) any {
		receipts, err := s.EnqueueUnder(h.t.Context(), holder(s), runs...)
		return []any{receipts, err == nil} // for which of two reasons it is refused is the store's to say
	})
}

func (h *history) renew() {
	if len(h.held) == 0 {
		return
	}
	held := h.held[h.random.IntN(len(h.held))]
	h.each("renew", func(s backend.Store) any {
		claims := held.claims[slices.Index(h.stores, s)]
		var all []lease.ClaimID
		for _, id := range held.runs {
			if !slices.Contains(all, claims[id]) {
				all = append(all, claims[id])
			}
		}
		renewed, err := s.Renew(h.t.Context(), all, time.Hour)
		return []any{len(renewed) == len(all), wordOf(err)}
	})
}

func (h *history) rerun() {
	if len(h.known) == 0 {
		return
	}
	of, run := h.known[h.random.IntN(len(h.known))].ID, h.newRun()
	h.known = append(h.known, run)
	h.each("rerun "+of.String()+" as "+h.ids([]store.NewRun{run}), func(s backend.Store) any {
		receipt, err := s.Rerun(h.t.Context(), of, run, "ann")
		return []any{receipt, wordOf(err)}
	})
}
