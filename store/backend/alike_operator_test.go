package backend_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// bulk changes all runs of a filter, a page at a time, as package operate does.
func (h *history) bulk() {
	filter, action := h.filter(), one(h, store.CancelRuns, store.RetryRuns, store.RetryRuns, store.AcknowledgeRuns, store.DeleteRuns)
	if filter.EndedSince = (time.Time{}); !filter.Narrow() && action != store.AcknowledgeRuns && h.random.IntN(4) > 0 {
		filter.Tag = "b" // most histories would be over
	}
	if len(filter.States) == 0 {
		filter.States = action.States()
	}
	change := &store.BulkChange{ID: uuid.New(), Filter: filter}
	h.each(fmt.Sprintf("bulk %s %+v", action, filter), func(s backend.Store) any {
		var answer []any
		page := filter
		for {
			listed, err := s.Runs(h.t.Context(), page)
			require.NoError(h.t, err)
			ids := make([]store.RunID, len(listed.Runs))
			for i := range ids {
				ids[i] = listed.Runs[i].ID
			}
			for _, part := range parts(action, ids) {
				changed, err := s.Operate(h.t.Context(), store.RunCommand{Action: action, Runs: part, By: "ann", Reason: "all", Bulk: change})
				require.NoError(h.t, err)
				for _, one := range changed {
					answer = append(answer, one)
				}
			}
			if page.Before = listed.Next; listed.Next == (store.RunID{}) {
				return answer
			}
		}
	})
}

// parts are the commands that change some runs. Which of the runs of one retry is due first,
// and to which of two it gives their key, is the store's to say: PostgreSQL retries those with a
// key after the others. So each run is retried on its own, the one that was made first before the others.
func parts(action store.RunAction, ids []store.RunID) [][]store.RunID {
	slices.SortFunc(ids, func(a, b store.RunID) int { return slices.Compare(a[:], b[:]) })
	if action != store.RetryRuns {
		return [][]store.RunID{ids}
	}
	return slices.Collect(slices.Chunk(ids, 1))
}

func (h *history) reveal() {
	id := append(h.some(), store.NewRunID())[0]
	h.each("reveal "+id.String(), func(s backend.Store) any { return wordOf(s.Reveal(h.t.Context(), id, "why", "bob")) })
}

// cancelRequests asks for what workers are to cancel.
func (h *history) cancelRequests() {
	h.each("cancel requests", func(s backend.Store) any {
		var claims []lease.ClaimID
		for _, held := range h.held {
			for _, claim := range held.claims[slices.Index(h.stores, s)] {
				if !slices.Contains(claims, claim) {
					claims = append(claims, claim)
				}
			}
		}
		requests, err := s.CancelRequests(h.t.Context(), claims)
		var answer []string
		for _, request := range requests {
			answer = append(answer, request.Run.String()+request.Reason)
		}
		slices.Sort(answer)
		return []any{answer, wordOf(err)}
	})
}

// release takes a named owner's places away.
func (h *history) release() {
	limit, key := limits[h.random.IntN(len(limits))].Name, one(h, "", "x")
	h.each(fmt.Sprint("release ", limit, "=", key), func(s backend.Store) any {
		gate, err := s.Gate(h.t.Context(), limit, key)
		if err != nil {
			return wordOf(err)
		}
		for _, permit := range gate.Permits {
			if permit.Until != store.UntilExpires {
				continue // the owner may be a claim, of which each store has its own
			}
			return wordOf(s.ChangeLimit(h.t.Context(), store.LimitChange{Command: store.ReleasePermit, Limit: store.Limit{Name: limit}, Key: key, Owner: permit.Owner, By: "bob"}))
		}
		return "none"
	})
}

// presence reports a worker, or what it does, and a report whose answer was lost again.
func (h *history) presence() {
	worker := one(h, store.WorkerID{Name: "v", Instance: uuid.UUID{1}}, store.WorkerID{Name: "w", Instance: uuid.UUID{2}}, store.WorkerID{Name: "u", Instance: uuid.UUID{3}})
	if h.random.IntN(4) == 0 {
		h.each("touch "+worker.Name, func(s backend.Store) any { return wordOf(s.Touch(h.t.Context(), worker)) })
		return
	}
	report := h.reported[worker.Name]
	if h.random.IntN(4) > 0 || report.Number == 0 { // or its answer was lost
		report = h.presenceOf(worker, report.Number+1)
		h.reported[worker.Name] = report
	}
	h.each(fmt.Sprintf("report %d of %s stopped %v", report.Number, worker.Name, report.Stopped), func(s backend.Store) any {
		shared, err := s.ReportWorker(h.t.Context(), report)
		return []any{shared.Alive, wordOf(err)}
	})
}

func (h *history) presenceOf(worker store.WorkerID, number int64) store.WorkerReport {
	report := store.WorkerReport{Worker: worker, Number: number, Stopped: h.random.IntN(6) == 0, Presence: store.Presence{
		Version: "v1", Queues: []string{"default"}, Jobs: []string{"mail"}, Capacity: 2, Executing: h.random.IntN(3), Draining: h.random.IntN(4) == 0,
		Every: store.Duration(time.Hour), Caps: one(h, nil, []store.OwnCap{{Queue: "other", Max: 1, Executing: 1}})}}
	for _, queue := range []string{"default", "other"} {
		if h.random.IntN(2) == 0 {
			report.Did = append(report.Did, store.LaneTally{Queue: queue, Job: one(h, "mail", store.OtherLanes), Tally: store.Tally{Enqueued: 1, Succeeded: int64(h.random.IntN(3)), Busy: store.Duration(time.Second),
				Wait: [store.Buckets]int64{3: 1}, Took: [store.Buckets]int64{15: 2}}})
		}
	}
	return report
}

func (h *history) queue() {
	name, action := one(h, "default", "other"), one(h, store.PauseQueue, store.ResumeQueue, store.ResumeQueue)
	h.each(fmt.Sprint(action, name), func(s backend.Store) any { return wordOf(s.SetQueue(h.t.Context(), name, action, "ann")) })
}

func (h *history) limit() {
	limit := one(h, append(limits[:len(limits):len(limits)], store.Limit{Name: store.QueueCap("other"), Kind: store.LimitSemaphore})...)
	limit.Max = max(h.random.IntN(4), limit.Most)
	change := store.LimitChange{Command: one(h, store.SetLimit, store.DrainLimit, store.ResumeLimit, store.ResumeLimit, store.DisableLimit, store.DeleteLimit, store.LiftPenalty),
		Limit: limit, By: "ann"}
	if change.Command == store.LiftPenalty {
		change.Key = one(h, "", "x")
	}
	h.each(fmt.Sprintf("%s %s %q max %d", change.Command, limit.Name, change.Key, limit.Max), func(s backend.Store) any { return wordOf(s.ChangeLimit(h.t.Context(), change)) })
}
