package postgres

import (
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// PrepareHandOn has the next settle of a claim wait for a claim of these lines, however long
// that takes.
func (s *Store) PrepareHandOn(claim lease.ClaimID, lines []store.LineID) {
	s.worker.settler.HandOnWithin(time.Minute, time.Minute)
	s.worker.settler.ExpectHandOn(claim, lines)
	s.worker.settler.DecidedOn(lines)
}

// SettlesThatWait is how many settles wait to hand places on.
func (s *Store) SettlesThatWait() int { return s.worker.settler.SettlesThatWait() }

// HandsOn reports whether the places of a claim are to be handed on.
func (s *Store) HandsOn(claim lease.ClaimID) bool { return s.worker.settler.HandsOn(claim) }

// MarkLine has the line of a gate be read from an instant on.
func (s *Store) MarkLine(gate int64, lane store.LaneID, due time.Time) {
	s.worker.admitter.MarkLine(gate, lane, due, lease.Elapsed()+time.Hour)
}
