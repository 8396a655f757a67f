package backend_test

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store"
	"github.com/durable-worker/durable-worker/store/backend"
)

// sound expects of each store, by itself, that what it counts and what it lists is one
// and the same, and that what belongs to a run ends with it.
func (h *history) sound() {
	h.t.Helper()
	for _, s := range h.stores {
		runs := map[store.RunID]*store.Record{}
		for _, id := range h.idsOf(s, store.Filter{Limit: 1 + h.random.IntN(50)}) {
			r, err := s.Run(h.t.Context(), id)
			require.NoError(h.t, err)
			runs[id] = &r
			h.soundRun(s, &r)
		}
		h.soundCounts(s, runs)
		h.soundSurvey(s, runs)
		h.soundLimits(s, runs)
	}
}

// wrong reports what is wrong with a store.
func (h *history) wrong(s backend.Store, format string, args ...any) {
	h.t.Helper()
	h.t.Errorf("%s: %s\nafter\n%s", h.nameOf(s), fmt.Sprintf(format, args...), h.last())
}

// soundRun looks at one run and its attempts.
func (h *history) soundRun(s backend.Store, r *store.Record) {
	last, charged := int64(-1), 0
	for _, a := range r.Attempts {
		if int64(a.Fence) <= last || a.Fence > r.Fence || a.Number < 1 {
			h.wrong(s, "run %s of fence %d has the attempts %+v", r.ID, r.Fence, r.Attempts)
		}
		if last = int64(a.Fence); !a.Outcome.Refunded() {
			charged++
		}
	}
	if r.Attempt > charged+1 && r.State != store.Cancelled || r.State == store.Running && r.Attempt < 1 || r.Attempt > int(r.Fence) {
		h.wrong(s, "run %s is at attempt %d of fence %d, with the attempts %+v", r.ID, r.Attempt, r.Fence, r.Attempts)
	}
	if r.State.Terminal() != (r.FinishedAt != nil) || r.State == store.Running && (r.StartedAt == nil || r.Worker == nil) {
		h.wrong(s, "run %s is %v, begun %v and ended %v", r.ID, r.State, r.StartedAt, r.FinishedAt)
	}
	if r.Isolated != (r.CrashCount >= 2) {
		h.wrong(s, "run %s has had %d crashes, isolated %v", r.ID, r.CrashCount, r.Isolated)
	}
	facts, err := s.Facts(h.t.Context(), r.ID)
	require.NoError(h.t, err)
	if facts.KeyHolder != nil {
		holder, err := s.Run(h.t.Context(), *facts.KeyHolder)
		if err != nil || holder.Key == nil || r.Key == nil || *holder.Key != *r.Key || holder.Job != r.Job {
			h.wrong(s, "the key of run %s is held by %+v, %v", r.ID, holder, err)
		}
	}
	if r.State == store.Running && facts.Lease == nil {
		h.wrong(s, "run %s is running without a lease", r.ID)
	}
}

// soundCounts compares the counts with the runs, and the problems with the dead ones.
func (h *history) soundCounts(s backend.Store, runs map[store.RunID]*store.Record) {
	want := map[store.State]int64{}
	for _, r := range runs {
		want[r.State]++
	}
	counts, err := s.Counts(h.t.Context())
	require.NoError(h.t, err)
	matching, err := s.CountMatching(h.t.Context(), store.Filter{})
	require.NoError(h.t, err)
	dead := 0
	for _, scope := range []store.ProblemScope{store.OpenProblems, store.AcknowledgedProblems} {
		problems, err := s.Problems(h.t.Context(), store.ProblemFilter{Scope: scope})
		require.NoError(h.t, err)
		dead += len(problems)
	}
	for _, state := range store.States() {
		if counts[state].N != want[state] || matching[state].N != want[state] || state == store.Dead && int64(dead) != want[state] {
			h.wrong(s, "there are %v, counted %v and %v, %d problems", want, counts, matching, dead)
		}
	}
}

// soundSurvey compares what is said to wait and to run with the runs. What is due may
// have changed in between.
func (h *history) soundSurvey(s backend.Store, runs map[store.RunID]*store.Record) {
	want := map[string][4]int64{}
	survey, err := s.Survey(h.t.Context())
	require.NoError(h.t, err)
	for _, r := range runs {
		n := want[r.Queue+"/"+r.Job]
		switch r.State {
		case store.Running:
			n[0]++
		case store.Pending:
			n[1]++
			if r.Isolated {
				n[2]++
			}
			if !r.DueAt.After(survey.At) {
				n[3]++
			}
		default:
			continue
		}
		want[r.Queue+"/"+r.Job] = n
	}
	for _, lane := range survey.Lanes {
		got := [4]int64{lane.Running.N, lane.Pending.N, lane.Isolated.N, lane.Due.N}
		if got != want[lane.Queue+"/"+lane.Job] {
			h.wrong(s, "%s/%s: running, pending, isolated, due: %v, want %v", lane.Queue, lane.Job, got, want[lane.Queue+"/"+lane.Job])
		}
		delete(want, lane.Queue+"/"+lane.Job)
	}
	if len(want) > 0 {
		h.wrong(s, "the survey leaves out %v", want)
	}
}

// soundLimits compares the places that are taken with the permits, and the permits with
// their runs.
func (h *history) soundLimits(s backend.Store, runs map[store.RunID]*store.Record) {
	infos, err := s.ListLimits(h.t.Context(), store.LimitFilter{Caps: true})
	require.NoError(h.t, err)
	waiting, limited := int64(0), int64(0)
	for _, r := range runs {
		if r.State == store.Pending && (len(r.Limits) > 0 || r.Queue == "other") {
			limited++
		}
	}
	for i := range infos {
		used := int64(0)
		waiting += infos[i].Waiting.N
		for _, key := range []string{"", "x"} {
			gate, err := s.Gate(h.t.Context(), infos[i].Name, key)
			require.NoError(h.t, err)
			places := 0
			for _, permit := range gate.Permits {
				places += permit.Places
				h.soundPermit(s, &infos[i], &permit, runs)
			}
			for _, waiter := range gate.Waiters {
				if r := runs[waiter.Run]; r == nil || r.State != store.Pending || r.Job != waiter.Job || r.Queue != waiter.Queue || r.Priority != waiter.Priority {
					h.wrong(s, "%s=%s: %+v waits, and is %+v", infos[i].Name, key, waiter, r)
				}
			}
			if gate.InUse != places || gate.Waiting.N != int64(len(gate.Waiters)) {
				h.wrong(s, "%s=%s: in use %d by %+v, waiting %d of %+v", infos[i].Name, key, gate.InUse, gate.Permits, gate.Waiting.N, gate.Waiters)
			}
			used += int64(places)
		}
		if !infos[i].Rate() && used != infos[i].InUse.N {
			h.wrong(s, "%s: in use %d, and the permits have %d", infos[i].Name, infos[i].InUse.N, used)
		}
	}
	if waiting > limited {
		h.wrong(s, "%d runs wait for limits, of %d that may", waiting, limited)
	}
}

// soundPermit expects that the run of a permit has not ended, unless it is dead and keeps it.
func (h *history) soundPermit(s backend.Store, limit *store.LimitInfo, permit *store.PermitInfo, runs map[store.RunID]*store.Record) {
	for _, id := range permit.Runs {
		r := runs[id]
		if r == nil || r.State.Terminal() && !slices.Contains([]store.LimitUntil{store.UntilExpires, store.UntilFinishedOrRevived}, permit.Until) ||
			permit.Until == store.UntilFinishedOrRevived && r.State.Terminal() && r.State != store.Dead ||
			permit.Until == store.UntilSettled && r.State != store.Running {
			h.wrong(s, "%s: run %s, %+v, has the permit %+v", limit.Name, id, r, permit)
		}
	}
}
