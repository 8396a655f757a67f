package storetest

import (
	"testing"

	"github.com/durable-worker/durable-worker/store"
)

func countTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a few succeeded runs beside very many pending ones are counted exactly": fewAmongMany,
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
