package storetest

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func countTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a few succeeded runs beside very many pending ones are counted exactly": fewAmongMany,
		"runs that pass a filter are counted by state":                           countMatching,
		"a queue says when it has more runs than were counted":                   queueAtLeast,
	}
}

// manyPending is more than stores count one by one in a table of any size.
const manyPending = 101_000

func (f *fixture) enqueueMany(n int) {
	f.t.Helper()
	const step = 10_000
	for left := n; left > 0; left -= step {
		f.enqueue(newRuns(min(step, left))...)
	}
}

func fewAmongMany(t *testing.T, f *fixture) {
	f.enqueueMany(manyPending)
	worker := newWorker("w1")
	claim, claimed := f.claim(worker, 119)
	f.settle(all(claim, worker, claimed, success()))
	counts, err := f.store.Counts(f.ctx)
	if err != nil {
		t.Fatalf("Counts: %v", err)
	}
	want := map[store.State]store.Count{
		store.Pending: {N: manyPending - 119}, store.Running: {}, store.Succeeded: {N: 119}, store.Dead: {}, store.Cancelled: {},
	}
	for state, count := range want {
		if counts[state] != count {
			t.Errorf("%v: %+v, want %+v", state, counts[state], count)
		}
	}
}

// queueAtLeast allows a store to count all runs of a queue, or to say that it
// has not.
func queueAtLeast(t *testing.T, f *fixture) {
	f.enqueueMany(manyPending)
	queues, err := f.store.Queues(f.ctx)
	if err != nil || len(queues) != 1 {
		t.Fatalf("Queues: %+v, %v", queues, err)
	}
	pending := queues[0].Pending
	if pending.Estimated || pending.AtLeast == (pending.N == manyPending) || pending.N < 10_000 || pending.N > manyPending {
		t.Errorf("%+v of %d runs: want all, or a lower bound of at least 10000 that says so", pending, manyPending)
	}
}

func countMatching(t *testing.T, f *fixture) {
	f.enqueue(newRuns(7, func(r *store.NewRun) { r.Queue, r.Tags = "bulk", []string{"red"} })...)
	f.enqueue(newRuns(12)...)
	worker := newWorker("w1")
	claim, claimed := f.claim(worker, 10)
	settlement := store.Settlement{Claim: claim, Worker: worker}
	for i, outcome := range append(outcomes(), outcomes()...) {
		if i < 8 {
			settlement.Runs = append(settlement.Runs, store.Settled{ID: claimed[i].ID, Outcome: outcome})
		}
	}
	f.settle(settlement)
	for _, test := range []struct {
		filter store.Filter
		states []store.State
	}{
		{store.Filter{}, store.States()},
		{store.Filter{Queues: []string{"bulk"}}, store.States()},
		{store.Filter{Tag: "red"}, store.States()},
		{store.Filter{Queues: []string{store.DefaultQueue}, States: []store.State{store.Running, store.Dead}}, []store.State{store.Running, store.Dead}},
		{store.Filter{Jobs: []string{"none"}}, store.States()},
		{store.Filter{IDs: []store.RunID{claimed[0].ID, claimed[9].ID}}, store.States()},
		{store.Filter{Since: time.Now().Add(time.Hour)}, store.States()},
	} {
		want := map[store.State]store.Count{}
		for _, state := range test.states {
			only := test.filter
			only.States = []store.State{state}
			ids, _ := f.pages(only)
			want[state] = store.Count{N: int64(len(ids))}
		}
		// A cursor and a limit have no effect.
		test.filter.Before, test.filter.Limit = claimed[3].ID, 1
		counts, err := f.store.CountMatching(f.ctx, test.filter)
		if err != nil || !maps.Equal(counts, want) {
			t.Errorf("filter %+v: %v, %v, want %v", test.filter, counts, err, want)
		}
	}
	if _, err := f.store.CountMatching(f.ctx, store.Filter{IDs: []store.RunID{}}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an empty choice of ids: %v, want ErrInvalid", err)
	}
}
