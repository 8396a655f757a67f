package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func inspectTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a run that never was is not found":                runNotFound,
		"an empty store counts zeros and lists nothing":    emptyStore,
		"paging shows every run once, newest first":        paging,
		"filters narrow by state, job and queue together":  filters,
		"runs come newest first by id, not by enqueue":     listOrder,
		"lists leave out attempts and stacks, not errors":  listRecords,
		"counts follow runs through their states":          countStates,
		"a new run does not disturb the pages after a run": stablePages,
	}
}

func runNotFound(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	for _, id := range []store.RunID{store.NewRunID(), {}} {
		if _, err := f.store.Run(f.ctx, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Run(%v): %v, want ErrNotFound", id, err)
		}
	}
}

func emptyStore(t *testing.T, f *fixture) {
	counts := f.counts()
	for _, state := range store.States() {
		if n, ok := counts[state]; !ok || n != 0 {
			t.Errorf("%v: %d, %v, want a zero", state, n, ok)
		}
	}
	if page := f.list(store.Filter{}); len(page.Runs) != 0 || page.Next != (store.RunID{}) {
		t.Errorf("page %+v, want an empty one", page)
	}
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
	if err != nil || len(heads) != 0 {
		t.Errorf("Heads: %v, %v", heads, err)
	}
}

func (f *fixture) list(filter store.Filter) store.Page {
	f.t.Helper()
	page, err := f.store.Runs(f.ctx, filter)
	if err != nil {
		f.t.Fatalf("Runs: %v", err)
	}
	return page
}

// pages walks all pages of a filter.
func (f *fixture) pages(filter store.Filter) (ids []store.RunID, sizes []int) {
	f.t.Helper()
	for {
		page := f.list(filter)
		for i := range page.Runs {
			ids = append(ids, page.Runs[i].ID)
		}
		sizes = append(sizes, len(page.Runs))
		if page.Next == (store.RunID{}) {
			return ids, sizes
		}
		if len(sizes) > 1000 {
			f.t.Fatal("the pages do not end")
		}
		filter.Before = page.Next
	}
}

func newestFirst(runs []store.NewRun) []store.RunID {
	var ids []store.RunID
	for _, run := range slices.Backward(runs) {
		ids = append(ids, run.ID)
	}
	return ids
}

func paging(t *testing.T, f *fixture) {
	runs := newRuns(60)
	f.enqueue(runs...)
	for _, test := range []struct {
		limit int
		sizes []int
	}{
		{0, []int{50, 10}}, {200, []int{60}}, {60, []int{60}}, {59, []int{59, 1}}, {30, []int{30, 30}}, {25, []int{25, 25, 10}},
	} {
		ids, sizes := f.pages(store.Filter{Limit: test.limit})
		if !slices.Equal(ids, newestFirst(runs)) || !slices.Equal(sizes, test.sizes) {
			t.Errorf("limit %d: %d runs on pages of %v, want %v", test.limit, len(ids), sizes, test.sizes)
		}
	}
	if ids, _ := f.pages(store.Filter{Limit: 1}); !slices.Equal(ids, newestFirst(runs)) {
		t.Errorf("limit 1: %d runs", len(ids))
	}
}

func filters(t *testing.T, f *fixture) {
	states := []store.OutcomeKind{store.Success, store.Death, store.Cancellation, 0, store.HandedBack}
	want := map[store.RunID]store.State{}
	runs := make([]store.NewRun, 120)
	for i := range runs {
		runs[i] = newRun(func(r *store.NewRun) {
			r.Job = []string{"mail", "report"}[i%2]
			r.Queue = []string{store.DefaultQueue, "slow", "bulk"}[i%3]
		})
	}
	f.enqueue(runs...)
	worker := newWorker("w1")
	request := f.request(worker, len(runs))
	heads, err := f.store.Heads(f.ctx, store.Serves{
		Queues: []string{store.DefaultQueue, "slow", "bulk"}, Jobs: []string{"mail", "report"},
	})
	if err != nil {
		t.Fatalf("Heads: %v", err)
	}
	request.Steps = nil
	for _, head := range heads {
		request.Steps = append(request.Steps, store.Step{Lane: head.Lane, Take: len(runs)})
	}
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil || len(claimed) != len(runs) {
		t.Fatalf("claimed %d runs, %v", len(claimed), err)
	}
	settlement := store.Settlement{Claim: request.Claim, Worker: worker}
	for i, c := range claimed {
		kind := states[i%len(states)]
		want[c.ID] = store.Running
		if kind != 0 {
			want[c.ID] = kind.State()
			outcome := store.Outcome{Kind: kind, Error: "why"}
			settlement.Runs = append(settlement.Runs, store.Settled{ID: c.ID, Outcome: outcome})
		}
	}
	f.settle(settlement)
	for _, filter := range []store.Filter{
		{}, {States: []store.State{store.Pending}}, {States: []store.State{store.Running}},
		{States: []store.State{store.Succeeded}}, {States: []store.State{store.Dead}},
		{States: []store.State{store.Cancelled}}, {States: []store.State{store.Dead, store.Cancelled}},
		{States: []store.State{store.Dead, store.Running, store.Pending}}, {States: store.States()},
		{Jobs: []string{"mail"}}, {Jobs: []string{"mail", "report"}}, {Jobs: []string{"none"}}, {Queues: []string{"slow"}},
		{Queues: []string{"slow", "bulk", "none"}, Jobs: []string{"report"}},
		{Queues: []string{"bulk"}, Jobs: []string{"mail"}, States: []store.State{store.Dead}},
		{Queues: []string{"bulk"}, Jobs: []string{"mail"}, States: []store.State{store.Succeeded, store.Running}},
	} {
		matching := slices.DeleteFunc(slices.Clone(runs), func(r store.NewRun) bool {
			return len(filter.States) > 0 && !slices.Contains(filter.States, want[r.ID]) ||
				len(filter.Jobs) > 0 && !slices.Contains(filter.Jobs, r.Job) ||
				len(filter.Queues) > 0 && !slices.Contains(filter.Queues, r.Queue)
		})
		for _, limit := range []int{7, 200} {
			filter.Limit = limit
			if ids, _ := f.pages(filter); !slices.Equal(ids, newestFirst(matching)) {
				t.Errorf("filter %+v: %d runs, want %d", filter, len(ids), len(matching))
			}
		}
	}
}

func listOrder(t *testing.T, f *fixture) {
	runs := newRuns(5)
	f.enqueue(runs[3], runs[1])
	f.enqueue(runs[4])
	f.enqueue(runs[0], runs[2])
	if ids, _ := f.pages(store.Filter{Limit: 2}); !slices.Equal(ids, newestFirst(runs)) {
		t.Errorf("runs %v, want %v", ids, newestFirst(runs))
	}
}

func listRecords(t *testing.T, f *fixture) {
	run := newRun(func(r *store.NewRun) { r.Tags, r.Args = []string{"a"}, []byte(`{"x": 1}`) })
	f.enqueue(run)
	worker := newWorker("w1")
	for i, outcome := range []store.Outcome{
		{Kind: store.Failure, Error: "first", Stack: "stack"}, {Kind: store.Failure, Error: "second"}, {Kind: store.Death, Error: "last"},
	} {
		claim, _ := f.claimOne(worker)
		f.settle(one(claim, worker, run.ID, outcome))
		listed, whole := f.list(store.Filter{}).Runs[0], f.record(run.ID)
		if listed.Error == nil || *listed.Error != outcome.Error || len(listed.Attempts) != 0 {
			t.Errorf("listed %+v, want the error %q and no attempts", listed, outcome.Error)
		}
		if len(whole.Attempts) != i+1 || *whole.Attempts[i].Error != outcome.Error || whole.Attempts[i].Number != i+1 {
			t.Errorf("attempts %+v, want %d, the last with the error %q", whole.Attempts, i+1, outcome.Error)
		}
		if listed.State != whole.State || listed.Attempt != whole.Attempt || listed.Tags[0] != "a" || string(listed.Args) != `{"x": 1}` ||
			listed.DueAt != whole.DueAt || *listed.Worker != "w1" || listed.Fence != whole.Fence || *listed.Error != *whole.Error {
			t.Errorf("listed %+v, alone %+v", listed, whole)
		}
	}
	if stack := f.record(run.ID).Attempts[0].Stack; stack == nil || *stack != "stack" {
		t.Errorf("the stack of the first attempt is %v", stack)
	}
}

func countStates(t *testing.T, f *fixture) {
	f.enqueue(newRuns(20)...)
	f.enqueue(newRuns(5, func(r *store.NewRun) { r.After = time.Hour })...)
	worker := newWorker("w1")
	claim, claimed := f.claim(worker, 12)
	settlement := store.Settlement{Claim: claim, Worker: worker}
	for i, outcome := range append(outcomes(), outcomes()...) {
		if i < 11 {
			settlement.Runs = append(settlement.Runs, store.Settled{ID: claimed[i].ID, Outcome: outcome})
		}
	}
	f.settle(settlement)
	want := map[store.State]int64{
		store.Pending: 18, store.Running: 1, store.Succeeded: 2, store.Dead: 2, store.Cancelled: 2,
	}
	for state, n := range f.counts() {
		if n != want[state] {
			t.Errorf("%d runs are %v, want %d", n, state, want[state])
		}
	}
	f.advance(31 * time.Second)
	f.reclaim()
	if counts := f.counts(); counts[store.Pending] != 19 || counts[store.Running] != 0 {
		t.Errorf("counts %v after a reclaim, want 19 pending and 0 running", counts)
	}
}

func stablePages(t *testing.T, f *fixture) {
	runs := newRuns(10)
	f.enqueue(runs...)
	first := f.list(store.Filter{Limit: 4})
	f.enqueue(newRuns(3)...)
	rest, _ := f.pages(store.Filter{Limit: 4, Before: first.Next})
	if !slices.Equal(rest, newestFirst(runs)[4:]) {
		t.Errorf("the pages after the first show %d runs, want 6", len(rest))
	}
}
