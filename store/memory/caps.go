package memory

import (
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/admit"
	"github.com/durable-worker/durable-worker/store"
)

// A claim that meets runs of a capped queue moves them into the line of the cap, and an
// admission adds the cap to those that wait for another limit.

// capQueue makes a queue capped as its cap says, after it was changed. Other limits cap
// none. The caller holds mu.
func (s *Store) capQueue(known *limit) {
	queue, caps := store.CappedQueue(known.Name)
	if !caps {
		return
	}
	paused := s.queues[queue]
	s.queues[queue] = paused // it is known from now on
	if known.State == store.LimitActive || known.State == store.LimitDraining {
		s.caps[queue] = known
	} else {
		delete(s.caps, queue)
	}
}

// capOf is the cap of a lane's queue, or nil.
func (s *Store) capOf(lane store.LaneID) *limit {
	if len(s.caps) == 0 {
		return nil
	}
	return s.caps[s.lanes[max(lane, -lane)-1].name.queue]
}

// adoptRuns moves the first due runs of a line into the line of a cap.
func (s *Store) adoptRuns(l *line, limit *limit, most int, now time.Time) {
	n := min(l.due(now), most)
	adopted := slices.Clone(l.runs[:n])
	l.cut(0, n)
	for _, r := range adopted {
		r.limits = []store.LimitUse{{Limit: limit.Name}}
		r.uses = admit.StoredUses(r.limits, s.limits.find)
		s.queueUp(r, now)
	}
	s.hintIf(n > 0)
}

// adopt adds the cap of its queue to a waiter that does not have it.
func (s *Store) adopt(r *run, lane store.LaneID) {
	limit := s.capOf(lane)
	if limit == nil || slices.ContainsFunc(r.limits, func(use store.LimitUse) bool { return use.Limit == limit.Name }) {
		return
	}
	r.limits = append(slices.Clip(r.limits), store.LimitUse{Limit: limit.Name})
	r.uses = admit.StoredUses(r.limits, s.limits.find)
	limit.lanes[lane] = true
}
