package memory

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
)

// Run returns one run with its attempts.
func (s *Store) Run(ctx context.Context, id store.RunID) (store.Record, error) {
	if err := ctx.Err(); err != nil {
		return store.Record{}, fmt.Errorf("run %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, found := s.runs[id]
	if !found {
		return store.Record{}, fmt.Errorf("run %s: %w", id, store.ErrNotFound)
	}
	record := r.toRecord()
	record.Attempts = r.history()
	record.Checkpoint = bytes.Clone(r.checkpoint)
	return record, nil
}

// Runs lists runs, newest first.
func (s *Store) Runs(ctx context.Context, filter store.Filter) (store.Page, error) {
	if err := ctx.Err(); err != nil {
		return store.Page{}, fmt.Errorf("runs: %w", err)
	}
	from, below, limit, err := filter.Range()
	if err != nil {
		return store.Page{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var page store.Page
	first, end := s.below(from), s.below(below)
	for _, r := range slices.Backward(s.byID[min(first, end):end]) {
		if !s.matches(&filter, r) {
			continue
		}
		if len(page.Runs) == limit {
			page.Next = page.Runs[limit-1].ID
			break
		}
		page.Runs = append(page.Runs, r.toRecord())
	}
	return page, nil
}

// matches reports whether a run passes a filter. The caller holds mu.
func (s *Store) matches(filter *store.Filter, r *run) bool {
	if filter.Linked() && !s.hasLink(filter, r) {
		return false
	}
	return (len(filter.IDs) == 0 || slices.Contains(filter.IDs, r.id)) && (len(filter.States) == 0 || slices.Contains(filter.States, r.state)) &&
		(len(filter.Jobs) == 0 || slices.Contains(filter.Jobs, r.lane.name.job)) &&
		(len(filter.Queues) == 0 || slices.Contains(filter.Queues, r.lane.name.queue)) &&
		(filter.Tag == "" || slices.Contains(r.tags, filter.Tag)) && (!filter.Selects() || selected(filter, r))
}

// selected reports whether a run has what a filter asks for beside its place.
func selected(filter *store.Filter, r *run) bool {
	for name, value := range filter.Metadata {
		if got, has := r.metadata[name]; !has || got != value {
			return false
		}
	}
	if filter.Error != "" {
		if text := r.lastError(); text == nil || !strings.Contains(*text, filter.Error) {
			return false
		}
	}
	if spellings := filter.ArgsSpellings(); spellings != nil && !slices.ContainsFunc(spellings, func(text string) bool { return strings.Contains(string(r.args), text) }) {
		return false
	}
	return (filter.Key == "" || r.key == filter.Key) && (filter.Schedule == "" || r.schedule == filter.Schedule) &&
		(filter.Worker == "" || r.worker == filter.Worker) && (filter.EndedSince.IsZero() || !r.finishedAt.IsZero() && !r.finishedAt.Before(filter.EndedSince))
}

// CountMatching counts the runs that pass a filter, exactly.
func (s *Store) CountMatching(ctx context.Context, filter store.Filter) (map[store.State]store.Count, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("count runs: %w", err)
	}
	filter.Before, filter.Limit = store.RunID{}, 0
	from, below, _, err := filter.Range()
	if err != nil {
		return nil, err
	}
	counts := make(map[store.State]store.Count)
	for _, state := range filter.Wanted() {
		counts[state] = store.Count{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first, end := s.below(from), s.below(below)
	for _, r := range s.byID[min(first, end):end] {
		if s.matches(&filter, r) {
			counts[r.state] = store.Count{N: counts[r.state].N + 1}
		}
	}
	return counts, nil
}

// Counts returns the number of runs in each state, exactly.
func (s *Store) Counts(ctx context.Context) (map[store.State]store.Count, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("counts: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[store.State]store.Count)
	for _, state := range store.States() {
		counts[state] = store.Count{}
	}
	for _, r := range s.byID {
		counts[r.state] = store.Count{N: counts[r.state].N + 1}
	}
	return counts, nil
}

// toRecord copies the run, without its attempts.
func (r *run) toRecord() store.Record {
	record := store.Record{
		ID:          r.id,
		Job:         r.lane.name.job,
		Queue:       r.lane.name.queue,
		State:       r.state,
		Attempt:     r.attempt,
		MaxAttempts: r.maxAttempts,
		CrashCount:  r.crashCount,
		Isolated:    r.isolated(),
		Priority:    r.lane.name.priority,
		DueAt:       r.dueAt,
		CreatedAt:   r.createdAt,
		StartedAt:   timeOrNil(r.startedAt),
		FinishedAt:  timeOrNil(r.finishedAt),
		ExpiresAt:   timeOrNil(r.expiresAt),
		Timeout:     store.Duration(r.timeout),
		Worker:      rules.TextOrNil(r.worker),
		Fence:       r.fence,
		Schedule:    rules.TextOrNil(r.schedule),
		Occurrence:  r.occursAt.Fixed(),
		Key:         rules.TextOrNil(r.key),
		Tags:        append([]string{}, r.tags...),
		Metadata:    maps.Clone(r.metadata),
		Limits:      store.LimitTexts(r.limits),
		Args:        bytes.Clone(r.args),
		Result:      bytes.Clone(r.result),
		Error:       r.lastError(),
		Progress:    copiedProgress(r.progress),
	}
	return record
}

// lastError is why the run is in its state.
func (r *run) lastError() *string {
	switch {
	case r.reason != "":
		return rules.TextOrNil(r.reason)
	case r.state == store.Succeeded || len(r.attempts) == 0:
		return nil
	default:
		return copied(r.attempts[len(r.attempts)-1].Error)
	}
}

// history copies the recorded attempts; a success is in the run itself.
func (r *run) history() []store.Attempt {
	attempts := append([]store.Attempt{}, r.attempts...)
	for i := range attempts {
		attempts[i].Error = copied(attempts[i].Error)
		attempts[i].Stack = copied(attempts[i].Stack)
		attempts[i].Log = copied(attempts[i].Log)
	}
	last := len(attempts) - 1
	if r.state == store.Succeeded && (last < 0 || attempts[last].Fence != r.fence) {
		attempts = append(attempts, store.Attempt{
			Number: r.attempt, Outcome: store.Success, Worker: r.worker, Fence: r.fence,
			StartedAt: r.startedAt, EndedAt: r.finishedAt,
		})
	}
	return attempts
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func copied(text *string) *string {
	if text == nil {
		return nil
	}
	return rules.TextOrNil(*text)
}
