package events

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/internal/storable"
	"github.com/durable-worker/durable-worker/observe"
	"github.com/durable-worker/durable-worker/store"
)

// Hooks returns the hooks that fill the stream: those that its kinds need, and no other.
// Give them to the worker, and to clients if you want RunEnqueued; observe.Join combines
// them with hooks of yours.
func (s *Stream) Hooks() observe.Hooks {
	var h observe.Hooks
	if s.any(RunEnqueued) {
		h.Enqueue = s.enqueue
	}
	if s.any(RunStarted) {
		h.Execute = s.execute
	}
	if s.any(RunSucceeded, RunRetried, RunSnoozed, RunParked, RunDead, RunCancelled, RunHandedBack, RunRefused) {
		h.RunSettled = s.settled
	}
	if s.any(RunDead, RunReclaimed, RunLost, RunStuck) {
		h.RunLost = s.lost
	}
	return h
}

// Changed notes a change that an operator has made. It is for operate.Config.Changed, and
// never blocks. A Stream that is nil, or does not want OperatorChanged, ignores it.
func (s *Stream) Changed(c store.Change) {
	if s == nil || !s.wants(OperatorChanged) {
		return
	}
	var detail struct {
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(c.Detail, &detail) // without a reason there is none
	s.add(Event{Kind: OperatorChanged, Change: &Change{Kind: c.Kind, Subject: c.Subject, Action: c.Action, By: c.Actor, Runs: c.Runs,
		Reason: some(storable.Clip(detail.Reason, errorMost))}})
}

func (s *Stream) enqueue(ctx context.Context, start observe.EnqueueStart) (context.Context, func(observe.EnqueueEnd)) {
	return ctx, func(end observe.EnqueueEnd) {
		if end.Err != nil {
			return
		}
		for i := range start.Runs {
			r := &start.Runs[i]
			s.add(Event{Kind: RunEnqueued, Run: &Run{ID: r.ID, Job: r.Job, Queue: r.Queue, MaxAttempts: r.MaxAttempts, Tags: slices.Clone(r.Tags),
				Trace: some(r.Trace), DueAt: when(r.At)}})
		}
	}
}

func (s *Stream) execute(ctx context.Context, start observe.ExecuteStart) (context.Context, func(observe.ExecuteEnd)) {
	s.add(Event{Kind: RunStarted, Run: of(start.Run)})
	return ctx, nil
}

// of is what an event says of a run.
func of(r store.RunInfo) *Run {
	return &Run{ID: r.ID, Job: r.Job, Queue: r.Queue, Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, CrashCount: r.CrashCount, Tags: slices.Clone(r.Tags),
		Schedule: some(r.Schedule), Trace: some(r.Trace), DueAt: when(r.DueAt), CreatedAt: when(r.CreatedAt)}
}

// outcomes are the kinds of outcomes that the store has taken.
var outcomes = map[store.OutcomeKind]Kind{ //nolint:gochecknoglobals // a constant table
	store.Success: RunSucceeded, store.Failure: RunRetried, store.Death: RunDead, store.Cancellation: RunCancelled,
	store.Snoozed: RunSnoozed, store.HandedBack: RunHandedBack, store.Misfit: RunRetried,
}

func (s *Stream) settled(v observe.RunVerdict) {
	if v.Verdict != store.Rejected && s.ends>>uint(v.Outcome)&1 == 0 { // most runs, unless successes are wanted
		return
	}
	what, known := outcomes[v.Outcome]
	switch {
	case v.Verdict == store.Rejected:
		what = RunRefused
	case len(v.Parks) > 0:
		what = RunParked
	}
	if !known || !s.wants(what) {
		return
	}
	run := of(v.Run)
	if v.Took > 0 {
		took := store.Duration(v.Took)
		run.Took = &took
	}
	if what == RunRetried || what == RunSnoozed || what == RunParked && v.After < store.MaxDelay {
		run.RetryAt = when(time.Now().Add(v.After))
	}
	if what == RunParked {
		run.Waits = waitsOf(v.Parks)
	}
	if v.Error != "" || v.Err != nil {
		run.ErrorType = some(errorType(v.Err))
		if s.config.Errors {
			run.Error = some(storable.Clip(v.Error, errorMost))
		}
	}
	s.add(Event{Kind: what, Run: run})
}

func waitsOf(parks []observe.Park) []Wait {
	waits := make([]Wait, min(len(parks), waitsMost))
	for i := range waits {
		waits[i] = Wait{Step: parks[i].Step, Kind: parks[i].Kind}
		if parks[i].In >= 0 {
			waits[i].Until = when(time.Now().Add(parks[i].In))
		}
	}
	return waits
}

func (s *Stream) lost(l observe.RunLoss) {
	run := &Run{ID: l.ID, Job: l.Job, Queue: l.Queue, CrashCount: l.CrashCount}
	switch l.Kind {
	case observe.LeaseLost:
		s.add(Event{Kind: RunLost, Run: run})
	case observe.HandlerStuck:
		s.add(Event{Kind: RunStuck, Run: run})
	case observe.WorkerCrashed:
		run.LostBy, run.Crash = some(l.Worker), true
		s.add(Event{Kind: RunReclaimed, Run: run})
		if l.Dead {
			s.add(Event{Kind: RunDead, Run: run})
		}
	}
}
