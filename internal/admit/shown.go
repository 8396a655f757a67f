package admit

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// ShownLine is a line whose runs wait for a gate, as operators see it.
type ShownLine struct {
	Home    GateID    // whose share its runs count for
	Since   time.Time // since when that one waits; the zero time: it waits in no round
	Waiters []store.Waiter
}

// InTurn are the waiters of lines in the order in which their gate admits them: by
// priority, then one of each home before a second of any, then by age.
func InTurn(lines []ShownLine) []store.Waiter {
	slices.SortStableFunc(lines, func(a, b ShownLine) int { return a.Since.Compare(b.Since) })
	type place struct {
		store.Waiter
		rank, turn int
	}
	var places []place
	turns := map[GateID]int{}
	for _, l := range lines {
		if _, known := turns[l.Home]; !known {
			turns[l.Home] = len(turns)
		}
		for _, w := range l.Waiters {
			places = append(places, place{Waiter: w, turn: turns[l.Home]})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.turn, b.turn), a.DueAt.Compare(b.DueAt), bytes.Compare(a.Run[:], b.Run[:]))
	})
	for i := 1; i < len(places); i++ {
		if places[i].turn == places[i-1].turn && places[i].Priority == places[i-1].Priority {
			places[i].rank = places[i-1].rank + 1
		}
	}
	if len(turns) > 1 {
		slices.SortStableFunc(places, func(a, b place) int { return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.rank, b.rank)) })
	}
	waiters := make([]store.Waiter, len(places))
	for i := range places {
		waiters[i] = places[i].Waiter
	}
	return waiters
}
