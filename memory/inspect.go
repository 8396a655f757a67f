package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/durable"
)

// The number of runs on a page.
const (
	defaultPage = 50
	largestPage = 200
)

// Run returns one run with its attempts.
func (s *Store) Run(ctx context.Context, id durable.RunID) (durable.Record, error) {
	if err := ctx.Err(); err != nil {
		return durable.Record{}, fmt.Errorf("run: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, found := s.runs[id]
	if !found {
		return durable.Record{}, fmt.Errorf("run %s: %w", id, durable.ErrNotFound)
	}
	record := r.toRecord()
	record.Attempts = r.history()
	record.Checkpoint = bytes.Clone(r.checkpoint)
	return record, nil
}

// Runs lists runs, newest first.
func (s *Store) Runs(ctx context.Context, filter durable.Filter) (durable.Page, error) {
	if err := ctx.Err(); err != nil {
		return durable.Page{}, fmt.Errorf("runs: %w", err)
	}
	if filter.Limit == 0 {
		filter.Limit = defaultPage
	}
	if filter.Limit < 1 || filter.Limit > largestPage {
		return durable.Page{}, fmt.Errorf("%w: limit %d: want 1 to %d", durable.ErrInvalid, filter.Limit, largestPage)
	}
	if len(filter.IDs) > largestPage {
		return durable.Page{}, fmt.Errorf("%w: %d ids: want at most %d", durable.ErrInvalid, len(filter.IDs), largestPage)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	end := len(s.byID)
	if filter.Before != (durable.RunID{}) {
		end = s.below(filter.Before)
	}
	var page durable.Page
	for _, r := range slices.Backward(s.byID[:end]) {
		if !matches(&filter, r) {
			continue
		}
		if len(page.Runs) == filter.Limit {
			page.Next = page.Runs[filter.Limit-1].ID
			break
		}
		page.Runs = append(page.Runs, r.toRecord())
	}
	return page, nil
}

func matches(filter *durable.Filter, r *run) bool {
	return (len(filter.IDs) == 0 || slices.Contains(filter.IDs, r.id)) && (len(filter.States) == 0 || slices.Contains(filter.States, r.state)) &&
		(len(filter.Jobs) == 0 || slices.Contains(filter.Jobs, r.lane.name.job)) &&
		(len(filter.Queues) == 0 || slices.Contains(filter.Queues, r.lane.name.queue))
}

// Counts returns the number of runs in each state.
func (s *Store) Counts(ctx context.Context) (map[durable.State]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("counts: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[durable.State]int64)
	for _, state := range durable.States() {
		counts[state] = 0
	}
	for _, r := range s.byID {
		counts[r.state]++
	}
	return counts, nil
}

// toRecord copies the run, without its attempts.
func (r *run) toRecord() durable.Record {
	record := durable.Record{
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
		Timeout:     durable.Duration(r.timeout),
		Worker:      textOrNil(r.worker),
		Fence:       r.fence,
		Schedule:    textOrNil(r.schedule),
		Key:         textOrNil(r.key),
		Tags:        append([]string{}, r.tags...),
		Args:        bytes.Clone(r.args),
		Result:      bytes.Clone(r.result),
		Error:       r.lastError(),
		Progress:    copiedProgress(r.progress),
	}
	return record
}

// lastError is why the run stands where it stands.
func (r *run) lastError() *string {
	switch {
	case r.reason != "":
		return textOrNil(r.reason)
	case r.state == durable.Succeeded || len(r.attempts) == 0:
		return nil
	default:
		return copied(r.attempts[len(r.attempts)-1].Error)
	}
}

// history copies the recorded attempts; a success is told by the run itself.
func (r *run) history() []durable.Attempt {
	attempts := append([]durable.Attempt{}, r.attempts...)
	for i := range attempts {
		attempts[i].Error = copied(attempts[i].Error)
		attempts[i].Stack = copied(attempts[i].Stack)
		attempts[i].Log = copied(attempts[i].Log)
	}
	last := len(attempts) - 1
	if r.state == durable.Succeeded && (last < 0 || attempts[last].Fence != r.fence) {
		attempts = append(attempts, durable.Attempt{
			Number: r.attempt, Outcome: durable.Success, Worker: r.worker, Fence: r.fence,
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
	return textOrNil(*text)
}
