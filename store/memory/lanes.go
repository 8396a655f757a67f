package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

// laneName is what makes a lane.
type laneName struct {
	queue    string
	job      string
	priority int
}

// lane holds the waiting runs of one (queue, job, priority).
type lane struct {
	id       store.LaneID // from 1
	name     laneName
	plain    line
	isolated line
}

// line is a list of waiting runs in the order in which they are claimed: by
// due time, then by id. Runs leave mostly at the front, which only moves the
// slice's start, and come mostly at the end.
type line struct {
	runs []*run
}

func order(a, b *run) int {
	if c := a.dueAt.Compare(b.dueAt); c != 0 {
		return c
	}
	return bytes.Compare(a.id[:], b.id[:])
}

// add puts a run in its place.
func (l *line) add(r *run) {
	n := len(l.runs)
	if n == 0 || order(l.runs[n-1], r) < 0 {
		l.runs = append(l.runs, r)
		return
	}
	i, _ := slices.BinarySearchFunc(l.runs, r, order)
	l.runs = slices.Insert(l.runs, i, r)
}

// from is the index of the first run due at t or later.
func (l *line) from(t time.Time) int {
	return sort.Search(len(l.runs), func(i int) bool { return !l.runs[i].dueAt.Before(t) })
}

// due is the number of runs due at t.
func (l *line) due(t time.Time) int {
	return sort.Search(len(l.runs), func(i int) bool { return l.runs[i].dueAt.After(t) })
}

// sweep removes the runs among [i, j) that no longer wait. The places of the
// runs before i do not change.
func (l *line) sweep(i, j int) {
	j = min(j, len(l.runs))
	keep := j
	for k := j - 1; k >= i; k-- {
		if l.runs[k].state == store.Pending {
			keep--
			l.runs[keep] = l.runs[k]
		}
	}
	l.cut(i, keep)
}

// cut removes [i, j), moving whichever side is shorter.
func (l *line) cut(i, j int) {
	if i >= len(l.runs)-j {
		l.runs = slices.Delete(l.runs, i, j)
		return
	}
	copy(l.runs[j-i:], l.runs[:i])
	clear(l.runs[:j-i])
	l.runs = l.runs[j-i:]
}

// line finds a line by its number, or answers nil.
func (s *Store) line(id store.LaneID) *line {
	n := max(id, -id)
	switch {
	case n < 1 || int(n) > len(s.lanes):
		return nil
	case id < 0:
		return &s.lanes[n-1].isolated
	default:
		return &s.lanes[n-1].plain
	}
}

// lane finds a lane by its name and makes it when it is new.
func (s *Store) lane(name laneName) *lane {
	if l, ok := s.byName[name]; ok {
		return l
	}
	l := &lane{id: store.LaneID(len(s.lanes) + 1), name: name} //nolint:gosec // memory ends long before
	s.lanes = append(s.lanes, l)
	s.byName[name] = l
	return l
}

// wait makes a run pending and puts it in its line. Every way to a pending run
// leads here. The instant is that of the whole operation: turns that were added
// together are as old as each other.
func (s *Store) wait(r *run, dueAt, now time.Time) {
	r.state, r.dueAt = store.Pending, dueAt
	switch {
	case len(r.uses) > 0:
		s.release(r, now)
		s.queueUp(r, now)
	case r.isolated():
		r.lane.isolated.add(r)
	default:
		r.lane.plain.add(r)
	}
}

// finish ends a run that is in no line. Every way to an ended run leads here.
func (s *Store) finish(r *run, state store.State, reason string, now time.Time) {
	r.state, r.finishedAt, r.reason = state, now, reason
	s.release(r, now)
	switch state {
	case store.Cancelled:
		s.orphan(r)
	case store.Dead:
		s.noteDeath(r, reason, now)
	default:
	}
}

// Heads returns the served lanes by number, the line of isolated runs after
// its lane.
func (s *Store) Heads(ctx context.Context, serves store.Serves) ([]store.Head, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("heads: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var heads []store.Head
	var served []*lane
	for _, l := range s.lanes {
		if !slices.Contains(serves.Queues, l.name.queue) || !slices.Contains(serves.Jobs, l.name.job) || s.queues[l.name.queue] {
			continue
		}
		heads = append(heads, l.head(l.id, l.plain, now))
		if len(l.isolated.runs) > 0 {
			heads = append(heads, l.head(-l.id, l.isolated, now))
		}
		served = append(served, l)
	}
	return append(heads, s.headsOfTurns(served, now)...), nil
}

func (l *lane) head(id store.LaneID, waiting line, now time.Time) store.Head {
	h := store.Head{Lane: id, Queue: l.name.queue, Job: l.name.job, Priority: l.name.priority}
	if len(waiting.runs) > 0 {
		h.Waiting = true
		h.DueAt = waiting.runs[0].dueAt
		h.In = h.DueAt.Sub(now)
	}
	return h
}
