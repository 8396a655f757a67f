package backend_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/internal/rules"
	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// filter is some filter for runs.
func (h *history) filter() store.Filter {
	filter := store.Filter{Limit: 1 + h.random.IntN(20)}
	for range h.random.IntN(3) {
		switch h.random.IntN(14) {
		case 0, 1:
			filter.States = one(h, []store.State{store.Pending}, []store.State{store.Dead, store.Cancelled}, []store.State{store.Running, store.Succeeded})
		case 2:
			filter.Jobs = []string{one(h, "mail", "none")}
		case 3:
			filter.Queues = []string{one(h, "other", "default")}
		case 4:
			filter.Tag = one(h, "a", "b")
		case 5:
			filter.Key = one(h, "k", "l")
		case 6:
			filter.Worker = one(h, "v", "w")
		case 7:
			filter.Error = one(h, "dea", "wh", "E", "lease")
		case 8:
			if name := one(h, scheduleNames...); !h.calendar.deleted[name] {
				filter.Schedule = name
			}
		case 9:
			filter.Args = one(h, `"n"`, "s", "1}")
		case 10:
			filter.EndedSince = time.Now().Add(one(h, -time.Hour, time.Hour))
		case 11:
			filter.IDs = append(h.some(), store.NewRunID())
		case 12:
			if len(h.known) > 0 { // times of ids: every engine has the same ones
				at := rules.MadeAt(one(h, h.known...).ID)
				filter.Since, filter.Until = one(h, time.Time{}, at), one(h, time.Time{}, at.Add(50*time.Millisecond))
			}
		default:
			filter.Metadata = store.Metadata{"tenant": one(h, "x", "y")}
		}
	}
	return filter
}

// list lists, page after page, and counts by some filter.
func (h *history) list() {
	filter := h.filter()
	h.each(fmt.Sprintf("list %+v", filter), func(s backend.Store) any {
		counts, failed := s.CountMatching(h.t.Context(), filter)
		ids := h.idsOf(s, filter)
		total := int64(0)
		for _, count := range counts {
			total += count.N
		}
		require.EqualValues(h.t, total, len(ids), "%s: %+v lists %v and counts %v\n%s", h.nameOf(s), filter, ids, counts, h.last())
		return []any{ids, counts, wordOf(failed)}
	})
}

func (h *history) nameOf(s backend.Store) string { return h.names[slices.Index(h.stores, s)] }

// idsOf are the runs of all pages, each once, newest first.
func (h *history) idsOf(s backend.Store, filter store.Filter) (ids []store.RunID) {
	for {
		page, err := s.Runs(h.t.Context(), filter)
		require.NoError(h.t, err)
		require.LessOrEqual(h.t, len(page.Runs), filter.Limit)
		for i := range page.Runs {
			id := page.Runs[i].ID
			require.True(h.t, len(ids) == 0 || slices.Compare(ids[len(ids)-1][:], id[:]) > 0, "%s: %s is listed after %v", h.nameOf(s), id, ids)
			ids = append(ids, id)
		}
		if filter.Before = page.Next; page.Next == (store.RunID{}) {
			return ids
		}
	}
}

// changes lists the audit, page after page.
func (h *history) changes() {
	filter := store.ChangeFilter{Limit: 1 + h.random.IntN(100), Kind: one(h, "", "", "run", "bulk", "queue", "schedule", "limit"),
		By: one(h, "", "", "ann", "bob"), Action: one(h, "", "", "cancel", "delete", "pause")}
	if filter.Kind == "schedule" {
		filter.Subject = one(h, "", scheduleNames[0])
	}
	h.each(fmt.Sprintf("changes %+v", filter), func(s backend.Store) any {
		answer, filter := []string{}, filter
		for {
			page, err := s.Changes(h.t.Context(), filter)
			require.NoError(h.t, err)
			require.LessOrEqual(h.t, len(page.Changes), filter.Limit)
			for _, c := range page.Changes {
				require.True(h.t, filter.Before == 0 || c.ID < filter.Before)
				filter.Before = c.ID
				answer = append(answer, fmt.Sprint(changeOf(&c)))
			}
			if filter.Before = page.Next; page.Next == 0 {
				slices.Sort(answer) // the changes of one command have no order
				return answer
			}
		}
	})
}

// changeOf is what a change says beside its time and its number.
func changeOf(c *store.Change) any {
	var detail any
	_ = json.Unmarshal(c.Detail, &detail) // none has none
	return []any{c.Actor, c.Kind, c.Subject, c.Action, detail, c.Runs}
}

// facts reads what decides about a run.
func (h *history) facts() {
	if len(h.known) == 0 {
		return
	}
	id := one(h, h.known...).ID
	h.each("facts of "+id.String(), func(s backend.Store) any {
		f, err := s.Facts(h.t.Context(), id)
		answer := []any{wordOf(err), f.ID, f.More, f.Paused != nil, f.CancelReason, f.KeyHolder, f.Held != nil, f.Lease != nil, f.Run != nil}
		if f.Run != nil {
			answer = append(answer, f.Run.State, f.Run.Attempt, len(f.Run.Attempts), f.Run.Error, f.Run.Key)
		}
		for i := range f.Changes {
			answer = append(answer, changeOf(&f.Changes[i]))
		}
		for i := range f.BulkDeletes {
			answer = append(answer, changeOf(&f.BulkDeletes[i]))
		}
		if f.Paused != nil {
			answer = append(answer, f.Paused.By)
		}
		if f.Declared != nil {
			answer = append(answer, f.Declared)
		}
		if f.Lease != nil {
			answer = append(answer, f.Lease.Worker, f.Lease.Instance)
		}
		lanes := map[string]any{} // lanes in which nothing waits may be left out
		for _, lane := range f.Lanes {
			if lane.Ahead.N > 0 {
				lanes[fmt.Sprint(lane.Queue, lane.Job, lane.Priority)] = []any{lane.Ahead, lane.Ended}
			}
		}
		answer = append(answer, lanes)
		for _, gate := range f.Gates {
			answer = append(answer, []any{gate.Use, gate.Limit.Name, gate.Key, gate.InUse, len(gate.Permits), gate.NotBefore != nil})
		}
		return answer
	})
}

// survey compares what waits and runs on each queue, the workers and what they did.
func (h *history) survey() {
	h.each("survey", func(s backend.Store) any {
		survey, err := s.Survey(h.t.Context())
		answer := []any{wordOf(err), survey.Partial, survey.ExpiredLeases}
		for _, lane := range survey.Lanes {
			if lane.Pending.N+lane.Running.N > 0 { // one that an enqueue named which was refused may be known
				answer = append(answer, []any{lane.Queue, lane.Job, lane.Paused, lane.Pending, lane.Due, lane.Isolated, lane.Running, lane.OldestDue != nil})
			}
		}
		return answer
	})
	h.each("workers", func(s backend.Store) any {
		workers, err := s.Workers(h.t.Context())
		answer := []any{wordOf(err)}
		for _, w := range workers {
			answer = append(answer, []any{w.Name, w.Instance, w.State, w.Leases > 0, w.Presence})
		}
		return answer
	})
	h.each("series", func(s backend.Store) any {
		var answer []any
		for _, query := range []store.SeriesQuery{
			{Span: store.Minute, Within: time.Hour},
			{Span: store.Quarter, Within: time.Hour, Step: time.Hour, NoTimes: true},
			{Span: store.Minute, Scope: store.EachLane, Within: time.Hour},
			{Span: store.Minute, Scope: store.EachLane, Within: time.Hour, Queue: "other"},
		} {
			points, err := s.Series(h.t.Context(), query)
			sums := map[string]*store.Tally{} // in which minute something was done is the clock's to say
			for i := range points {
				lane := points[i].Queue + "/" + points[i].Job
				if sums[lane] == nil {
					sums[lane] = &store.Tally{}
				}
				sums[lane].Add(&points[i].Tally)
			}
			answer = append(answer, sums, wordOf(err))
		}
		return answer
	})
	h.each("jobs", func(s backend.Store) any {
		jobs, err := s.Jobs(h.t.Context())
		return []any{jobs, wordOf(err)}
	})
}

// problems lists dead runs.
func (h *history) problems() {
	filter := store.ProblemFilter{Scope: one(h, store.OpenProblems, store.AcknowledgedProblems), Limit: h.random.IntN(5),
		Since: one(h, time.Time{}, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)), Jobs: one(h, nil, []string{"mail"}), Queues: one(h, nil, []string{"other"})}
	h.each(fmt.Sprintf("problems %+v", filter), func(s backend.Store) any {
		problems, err := s.Problems(h.t.Context(), filter)
		answer := []any{wordOf(err), len(problems)}
		for _, p := range problems {
			if filter.Limit == 0 { // what ended in one microsecond has no order
				answer = append(answer, []any{p.Job, p.Queue, p.AcknowledgedAt != nil, p.AcknowledgedBy})
			}
		}
		slices.SortFunc(answer[2:], func(a, b any) int { return slices.Compare([]byte(fmt.Sprint(a)), []byte(fmt.Sprint(b))) })
		return answer
	})
}
