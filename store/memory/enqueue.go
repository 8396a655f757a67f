package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// Enqueue stores all the runs or none.
func (s *Store) Enqueue(ctx context.Context, runs ...store.NewRun) ([]store.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	if err := store.CheckRuns(runs); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.checkLimits(runs), s.checkSources(runs), s.checkBatches(nil, runs)); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	return s.take(nil, runs), nil
}

// take stores runs that have been checked; those of a handler for the holder. The caller holds mu.
func (s *Store) take(holder *run, runs []store.NewRun) []store.Receipt {
	if store.AnyLinked(runs) {
		runs = rules.Held(runs)
	}
	now := s.now()
	receipts := make([]store.Receipt, len(runs))
	for i := range runs {
		receipts[i] = s.enqueue(&runs[i], now)
	}
	s.gather(holder, runs, receipts, now)
	if len(runs) > 0 {
		s.hint()
	}
	return receipts
}

// insert stores one run, unless its id is already there. A run that is due
// later is hinted at too: a sleeping worker then learns when to wake.
func (s *Store) insert(n *store.NewRun, schedule string, now time.Time) bool {
	if _, exists := s.runs[n.ID]; exists {
		return false
	}
	r := &run{
		id:          n.ID,
		lane:        s.lane(laneName{n.Queue, n.Job, n.Priority}),
		args:        bytes.Clone(n.Args),
		maxAttempts: n.MaxAttempts,
		timeout:     n.Timeout,
		onCrash:     n.OnCrash,
		tags:        slices.Clone(n.Tags),
		metadata:    maps.Clone(n.Metadata),
		trace:       n.Trace,
		key:         n.Key.Text,
		schedule:    schedule,
		createdAt:   now,
		expiresAt:   micro(n.ExpiresAt),
	}
	s.setLimits(r, n.Limits)
	s.runs[r.id] = r
	s.index(r)
	dueAt := micro(now.Add(n.Delay()))
	if !n.At.IsZero() {
		dueAt = micro(n.At)
	}
	s.wait(r, dueAt, now)
	s.link(r, n)
	return true
}

// index keeps byID in order; ids mostly rise.
func (s *Store) index(r *run) {
	last := len(s.byID) - 1
	if last < 0 || bytes.Compare(s.byID[last].id[:], r.id[:]) < 0 {
		s.byID = append(s.byID, r)
		return
	}
	i := s.below(r.id)
	s.byID = slices.Insert(s.byID, i, r)
}

// below is the number of runs with a smaller id.
func (s *Store) below(id store.RunID) int {
	i, _ := slices.BinarySearchFunc(s.byID, id, func(r *run, id store.RunID) int { return bytes.Compare(r.id[:], id[:]) })
	return i
}
