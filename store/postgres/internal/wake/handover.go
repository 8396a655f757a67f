package wake

import (
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// handover is a watch of this worker that it hands over before the end if it has found
// enough runs, so that enqueues see no gap between two watches. The zero value is none.
type handover struct {
	began time.Duration // monotonic clock
	at    time.Duration // when to hand over, on the monotonic clock; zero: no watch is under way
	dues  []store.Due
	found int64 // runs that the process had claimed when the watch began
}

// add begins a watch that lasts for rest, or adds lanes to the one under way, whose end stays.
func (h *handover) add(now, rest time.Duration, dues []store.Due, found int64) {
	if h.at == 0 {
		*h = handover{began: now, at: now + rest - store.HandOver, found: found}
	}
	for i := range dues {
		known := slices.ContainsFunc(h.dues, func(due store.Due) bool { return due.Lane == dues[i].Lane })
		if !known && len(h.dues) < handedLanes {
			h.dues = append(h.dues, dues[i])
		}
	}
}

// drop removes the lanes that a notification hands over: their next watcher is drawn by it.
func (h *handover) drop(heard []store.Signal) {
	h.dues = slices.DeleteFunc(h.dues, func(due store.Due) bool {
		return slices.ContainsFunc(heard, func(signal store.Signal) bool { return signal.Due.For == store.HandOver && signal.Due.Lane == due.Lane })
	})
}

// next ends the watch and returns the wake-ups that hand it over. It returns none if the
// watch has found too few runs to be worth continuing.
func (h *handover) next(now time.Duration, found int64) (dues []store.Due) {
	gap := now - h.began
	if n := found - h.found; n > 0 {
		gap /= time.Duration(n)
	}
	if gap <= 2*watchGap {
		dues = h.dues
	}
	every, draw := (&tempo{gap: gap}).every(), newDraw()
	for i := range dues {
		due := &dues[i]
		due.Runs, due.Every, due.For, due.Draw = 1, every, store.HandOver, draw
	}
	*h = handover{}
	return dues
}
