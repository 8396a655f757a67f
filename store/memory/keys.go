package memory

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// keyName is a key of a job.
type keyName struct{ job, text string }

// keyHolder is the run that holds a key.
type keyHolder struct {
	run    store.RunID
	latest store.RunID // of the enqueue that stored the run, or replaced it last
	heldTo time.Time   // even when the run has ended; the zero time: only while it has not
}

// enqueue stores one run, or does what its key says.
func (s *Store) enqueue(n *store.NewRun, now time.Time) store.Receipt {
	if _, stored := s.runs[n.ID]; stored || n.Key.Text == "" {
		return store.Receipt{ID: n.ID, Existing: !s.insert(n, "", now)}
	}
	name := keyName{n.Job, n.Key.Text}
	holder := s.keys[name]
	switch n.Key.Judge(n.ID, s.holder(holder, now)) {
	case store.LeavesHolder:
	case store.ReplacesHolder:
		s.replace(s.runs[holder.run], n, now)
		holder.latest = n.ID
	default:
		s.insert(n, "", now)
		s.keys[name] = &keyHolder{run: n.ID, latest: n.ID}
		if n.Key.HeldFor > 0 {
			s.keys[name].heldTo = micro(now.Add(n.Key.HeldFor))
		}
		return store.Receipt{ID: n.ID}
	}
	return store.Receipt{ID: holder.run, Existing: true}
}

// holder returns the run that holds a key, in the form that the decision takes.
func (s *Store) holder(k *keyHolder, now time.Time) store.KeyHolder {
	if k == nil {
		return store.KeyHolder{}
	}
	r, stored := s.runs[k.run]
	if !stored {
		return store.KeyHolder{}
	}
	return store.KeyHolder{Stored: true, Latest: k.latest, State: rules.StateForKey(r.state, r.hasBegun()), Held: k.heldTo.After(now)}
}

// replace gives a pending run what another has that was enqueued for it.
func (s *Store) replace(r *run, n *store.NewRun, now time.Time) {
	s.leave(r, now)
	r.lane = s.lane(laneName{n.Queue, n.Job, n.Priority})
	r.args, r.tags, r.metadata = bytes.Clone(n.Args), slices.Clone(n.Tags), maps.Clone(n.Metadata)
	r.maxAttempts, r.timeout, r.onCrash = n.MaxAttempts, n.Timeout, n.OnCrash
	r.expiresAt, r.attempt, r.trace, r.occursAt = micro(n.ExpiresAt), 0, n.Trace, ""
	r.progress, r.checkpoint = nil, nil
	s.releaseAll(r, now)
	s.setLimits(r, n.Limits)
	s.wait(r, micro(n.ReplacedDue(now, r.createdAt)), now)
}

// leave takes a pending run out of its line.
func (s *Store) leave(r *run, now time.Time) {
	if len(r.uses) > 0 {
		g := r.gate
		s.stepOut(r)
		s.announce(g, now) // it may have been in the way of others
		return
	}
	line := s.line(r.laneID())
	if i, found := slices.BinarySearchFunc(line.runs, r, order); found {
		line.cut(i, i+1)
	}
}
