package storetest

import (
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

// repeatOtherSteps asks one claim again with steps that differ from those that
// took its runs, as a worker does that has read the heads in between. Whatever
// they are, the answer is everything that the claim holds.
func repeatOtherSteps(t *testing.T, f *fixture) {
	for priority := range 3 {
		f.enqueue(newRuns(12, func(r *store.NewRun) { r.Priority = priority })...)
	}
	request := f.request(newWorker("w1"), 10)
	lanes := make([]store.LaneID, len(request.Steps))
	for i, step := range request.Steps {
		lanes[i] = step.Lane
	}
	request.Steps = []store.Step{{Lane: lanes[0], Take: 4}, {Lane: lanes[1], Take: 6}}
	first, err := f.store.Claim(f.ctx, request)
	if err != nil || len(first) != 10 {
		t.Fatalf("claimed %d runs, %v, want 10", len(first), err)
	}
	unknown := lanes[2] + 1000
	for name, again := range map[string][]store.Step{
		"the same":                request.Steps,
		"the other way round":     {{Lane: lanes[1], Take: 6}, {Lane: lanes[0], Take: 4}},
		"none":                    nil,
		"one lane only":           {{Lane: lanes[1], Take: 6}},
		"fewer of each":           {{Lane: lanes[0], Take: 1}, {Lane: lanes[1], Take: 1}},
		"nothing of each":         {{Lane: lanes[0]}, {Lane: lanes[1]}},
		"more of each":            {{Lane: lanes[0], Take: 100}, {Lane: lanes[1], Take: 100}},
		"others before":           {{Lane: lanes[2], Take: 5}, {Lane: lanes[0], Take: 4}, {Lane: lanes[1], Take: 6}},
		"others beside":           {{Lane: lanes[0], Take: 4}, {Lane: lanes[2], Take: 6}},
		"others only":             {{Lane: lanes[2], Take: 5}, {Lane: unknown, Take: 5}},
		"isolated lines":          {{Lane: -lanes[0], Take: 5}, {Lane: -lanes[1], Take: 5}},
		"a lane in pieces":        {{Lane: lanes[0], Take: 1}, {Lane: lanes[1], Skip: 3, Take: 2}, {Lane: lanes[0], Skip: 2, Take: 1}},
		"far behind the first":    {{Lane: lanes[0], Skip: 100, Take: 4}, {Lane: lanes[1], Skip: 100, Take: 6}},
		"from a later time on":    {{Lane: lanes[0], From: f.now().Add(time.Hour), Take: 4}, {Lane: lanes[1], From: f.now(), Take: 6}},
		"one lane again and more": {{Lane: lanes[2], Take: 5}, {Lane: lanes[1], Take: 2}},
	} {
		for _, limit := range []int{1, 10, 1000} {
			repeat := request
			repeat.Steps, repeat.Limit = again, limit
			answer, err := f.store.Claim(f.ctx, repeat)
			if err != nil {
				t.Errorf("%s, at most %d: %v", name, limit, err)
				continue
			}
			wantSameRuns(t, name, answer, first)
		}
	}
	if left := f.counts(); left[store.Running] != 10 || left[store.Pending] != 26 {
		t.Errorf("a repeat took runs: %v", left)
	}
}

// repeatAfterSettles asks a claim again of which a part has been settled.
func repeatAfterSettles(t *testing.T, f *fixture) {
	f.enqueue(newRuns(6)...)
	f.enqueue(newRuns(6, func(r *store.NewRun) { r.Priority = 1 })...)
	worker := newWorker("w1")
	request := f.request(worker, 12)
	first, err := f.store.Claim(f.ctx, request)
	if err != nil || len(first) != 12 {
		t.Fatalf("claimed %d runs, %v, want 12", len(first), err)
	}
	settlement := all(request.Claim, worker, first[3:9], success())
	settlement.Last = false
	f.settle(settlement)
	request.Steps = request.Steps[:1]
	answer, err := f.store.Claim(f.ctx, request)
	if err != nil {
		t.Fatalf("Claim again: %v", err)
	}
	wantSameRuns(t, "after settles", answer, append(append([]store.ClaimedRun{}, first[:3]...), first[9:]...))
}

// wantSameRuns compares two answers to one claim, whatever their order.
func wantSameRuns(t *testing.T, name string, got, want []store.ClaimedRun) {
	t.Helper()
	fences := map[store.RunID]lease.Fence{}
	for i := range want {
		fences[want[i].ID] = want[i].Fence
	}
	for i := range got {
		if fence, held := fences[got[i].ID]; !held || fence != got[i].Fence {
			t.Errorf("%s: the answer has run %s of fence %d twice, or the claim does not hold it", name, got[i].ID, got[i].Fence)
		}
		delete(fences, got[i].ID)
	}
	if len(fences) > 0 {
		t.Errorf("%s: the answer has %d runs and leaves out %d of those that the claim holds", name, len(got), len(fences))
	}
}
