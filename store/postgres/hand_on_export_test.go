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
	s.handing.decided.mark()
	s.handing.met(true)
	s.handing.expect(claim, lines)
}

// SettlesThatWait is how many settles wait to hand places on.
func (s *Store) SettlesThatWait() int {
	s.handing.settles.mu.Lock()
	defer s.handing.settles.mu.Unlock()
	return len(s.handing.settles.waiting)
}
