package postgres

import (
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// PrepareHandOn has the next settle of a claim wait for a claim of these lines, however long
// that takes.
func (s *Store) PrepareHandOn(claim lease.ClaimID, lines []store.LineID) {
	s.handing.wait = time.Minute
	s.handing.met(true)
	s.handing.expect(claim, lines)
	s.handing.decide(lines)
	s.handing.mu.Lock()
	defer s.handing.mu.Unlock()
	s.handing.until = 0 // the test's previous settle may just have waited in vain
	for _, line := range lines {
		s.handing.decided[line] += time.Minute // however slow the machine is
	}
}

// SettlesThatWait is how many settles wait to hand places on.
func (s *Store) SettlesThatWait() int {
	s.handing.settles.mu.Lock()
	defer s.handing.settles.mu.Unlock()
	return len(s.handing.settles.waiting)
}

// HandsOn reports whether the places of a claim are to be handed on.
func (s *Store) HandsOn(claim lease.ClaimID) bool {
	s.handing.mu.Lock()
	defer s.handing.mu.Unlock()
	return len(s.handing.claims[claim]) > 0
}

// MarkLine has the line of a gate be read from an instant on.
func (s *Store) MarkLine(gate int64, lane store.LaneID, due time.Time) {
	s.marks.mu.Lock()
	defer s.marks.mu.Unlock()
	s.marks.set(lineAt{gate, lane}, lineMark{due: due, until: lease.Elapsed() + time.Hour})
}
