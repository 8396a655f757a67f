package backend_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// compare compares all that the stores have.
func (h *history) compare() {
	h.t.Helper()
	ctx := h.t.Context()
	h.quiet = true
	defer func() { h.quiet = false }()
	h.each("counts", func(s backend.Store) any {
		counts, err := s.Counts(ctx)
		return []any{counts, wordOf(err)}
	})
	h.compareSchedules()
	for _, run := range h.known {
		h.each("run "+run.ID.String(), func(s backend.Store) any { return h.record(ctx, s, run.ID) })
	}
	h.each("queues", func(s backend.Store) any {
		queues, err := s.Queues(ctx)
		queues = slices.DeleteFunc(queues, func(q store.QueueInfo) bool { // one that an enqueue named which was refused may be known
			return !q.Paused && q.MaxConcurrent == nil
		})
		return []any{queues, wordOf(err)}
	})
	h.each("problems", func(s backend.Store) any {
		problems, err := s.Problems(ctx, store.ProblemFilter{})
		var answer []string
		for _, p := range problems {
			answer = append(answer, fmt.Sprint(p.Run, p.Job, p.Queue, p.Reason))
		}
		slices.Sort(answer)
		return []any{answer, wordOf(err)}
	})
	// In which of two lines a run waits whose named owner has a permit is the store's to say.
	h.each("limits", func(s backend.Store) any {
		limits, err := s.ListLimits(ctx, store.LimitFilter{Caps: true})
		var answer []any
		for _, l := range limits {
			answer = append(answer, []any{l.Name, l.Max, l.State, l.Edited, l.InUse})
		}
		return []any{answer, wordOf(err)}
	})
	for _, key := range []string{"", "x"} {
		for _, limit := range append(limits[:len(limits):len(limits)], store.Limit{Name: store.QueueCap("other")}) {
			h.each("gate "+limit.Name+"="+key, func(s backend.Store) any {
				gate, err := s.Gate(ctx, limit.Name, key)
				return []any{gate.InUse, len(gate.Permits), gate.NotBefore != nil, wordOf(err)}
			})
		}
	}
	h.each("faults of limits", func(s backend.Store) any {
		faults, err := s.CheckLimits(ctx)
		if len(faults) > 0 {
			h.t.Errorf("%s: %+v\n%v\nafter\n%s", h.names[slices.Index(h.stores, s)], faults, h.record(ctx, s, faults[0].Run), h.last())
		}
		return wordOf(err)
	})
}

// record is what a store has of a run, with the times by what they say.
func (h *history) record(ctx context.Context, s backend.Store, id store.RunID) any {
	return h.recordIn(ctx, s, id)
}

// recordIn is record as a store or a transaction sees it.
func (h *history) recordIn(ctx context.Context, s interface {
	Run(ctx context.Context, id store.RunID) (store.Record, error)
}, id store.RunID) any {
	r, err := s.Run(ctx, id)
	if err != nil {
		return wordOf(err)
	}
	due := "now"
	if later := time.Until(r.DueAt); later > 10*time.Minute {
		due = fmt.Sprint("in hours: ", int((later+10*time.Minute)/time.Hour))
	}
	set := func(t *time.Time) bool { return t != nil }
	var attempts []any
	for _, a := range r.Attempts {
		attempts = append(attempts, []any{a.Number, a.Outcome, a.Worker, a.Error, a.Stack})
	}
	if r.State.Terminal() {
		due = ""
	}
	progress := ""
	if r.Progress != nil {
		progress = fmt.Sprintf("%v %q", r.Progress.Fraction, r.Progress.Note)
	}
	return []any{r.Job, r.Queue, r.State, r.Attempt, r.MaxAttempts, r.CrashCount, r.Isolated, r.Priority, due, set(r.StartedAt), set(r.FinishedAt), r.Timeout,
		r.Worker, r.Key, h.scheduleOf(&r), r.ExpiresAt, r.Tags, r.Metadata, r.Limits, string(r.Args), string(r.Result), r.Error, attempts, progress, string(r.Checkpoint)}
}

// finish lifts all that keeps runs from being executed, executes what is due, and expects
// that nothing due is left.
func (h *history) finish() {
	h.t.Helper()
	for _, queue := range []string{"default", "other"} {
		h.each("resume", func(s backend.Store) any { return wordOf(s.SetQueue(h.t.Context(), queue, store.ResumeQueue, "ann")) })
	}
	for _, limit := range append(limits[:len(limits):len(limits)], store.Limit{Name: store.QueueCap("other")}) {
		h.each("off", func(s backend.Store) any {
			return wordOf(s.ChangeLimit(h.t.Context(), store.LimitChange{Command: store.DisableLimit, Limit: limit, By: "ann"}))
		})
	}
	for range 100 {
		h.claim()
		h.admit()
		for len(h.held) > 0 {
			ends := make([]store.Settled, len(h.held[0].runs))
			for i, id := range h.held[0].runs {
				ends[i] = store.Settled{ID: id, Outcome: store.Outcome{Kind: store.Success}}
			}
			h.end(0, 1, ends)
		}
	}
	h.compare()
	h.dueAreExecuted()
	h.sweep()
	h.compare()
}

// dueAreExecuted expects that no run is left that is due.
func (h *history) dueAreExecuted() {
	h.t.Helper()
	for i, s := range h.stores {
		for _, run := range h.known {
			if r, err := s.Run(h.t.Context(), run.ID); err == nil && r.State == store.Pending && time.Until(r.DueAt) < time.Minute {
				h.t.Errorf("%s: run %s is due, and no claim takes it; limits %v, isolated %v\nafter\n%s", h.names[i], run.ID, r.Limits, r.Isolated, h.last())
			}
		}
	}
}
