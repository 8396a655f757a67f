package storetest

import (
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func strandedTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a lease of more runs than its worker was given is left to expire": lastOfFewer,
		"a lease whose runs have all ended goes, however many they were":   lastOfOther,
		"a running run whose lease has gone is counted and listed":         strandedShown,
		"a running run whose lease has gone is found within minutes":       strandedSoon,
	}
}

// lastOfFewer settles as a worker does whose answer to the claim left out a run.
func lastOfFewer(t *testing.T, f *fixture) {
	for _, n := range []int{3, 300} { // of few runs and of more than stand in one row
		worker := newWorker("w1")
		f.enqueue(newRuns(n)...)
		claim, claimed := f.claim(worker, n)
		settlement := all(claim, worker, claimed[1:], success())
		settlement.Claimed = len(settlement.Runs)
		f.settle(settlement)
		if done := f.reclaim(); done.Leases != 0 {
			t.Errorf("of %d: %d leases have expired before their time", n, done.Leases)
		}
		f.advance(31 * time.Second)
		if done := f.reclaim(); done.Leases != 1 || len(done.Runs) != 1 || done.Runs[0].ID != claimed[0].ID {
			t.Errorf("of %d: reclaimed %+v, want the run that no worker knew of", n, done)
		}
		again, left := f.claim(worker, n)
		f.settle(all(again, worker, left, success()))
	}
}

func lastOfOther(t *testing.T, f *fixture) {
	for _, given := range []int{0, 2, 3, 1000} {
		worker := newWorker("w1")
		f.enqueue(newRuns(3)...)
		claim, claimed := f.claim(worker, 3)
		first := all(claim, worker, claimed[:1], success())
		first.Last = false
		f.settle(first)
		last := all(claim, worker, claimed[1:], store.Outcome{Kind: store.Death})
		last.Claimed = given
		for range 2 {
			f.settle(last)
		}
		renewed, err := f.store.Renew(f.ctx, []lease.ClaimID{claim}, time.Minute)
		if err != nil || len(renewed) != 0 {
			t.Errorf("given %d: the lease still exists: %v, %v", given, renewed, err)
		}
	}
}

func strandedShown(t *testing.T, f *fixture) {
	_, lost := f.strand(newWorker("w1"))
	f.enqueue(newRuns(3)...)
	_, held := f.claimOne(newWorker("w2"))
	if counts := f.counts(); counts[store.Running] != 2 || counts[store.Pending] != 2 || counts[store.Succeeded] != 1 {
		t.Errorf("counts %v, want 2 running, 2 pending, 1 succeeded", counts)
	}
	for _, filter := range []store.Filter{
		{States: []store.State{store.Running}}, {States: []store.State{store.Running}, Jobs: []string{"mail"}},
		{States: []store.State{store.Running, store.Dead}},
	} {
		got := map[store.RunID]bool{}
		for _, record := range f.list(filter).Runs {
			got[record.ID] = true
		}
		if len(got) != 2 || !got[lost.ID] || !got[held.ID] {
			t.Errorf("listed %v, want %s and %s", got, lost.ID, held.ID)
		}
	}
	if got := f.list(store.Filter{States: []store.State{store.Running}, Jobs: []string{"other"}}); len(got.Runs) > 0 {
		t.Errorf("of another job: listed %+v", got.Runs)
	}
}

// strandedSoon strands a run right after a full pass.
func strandedSoon(t *testing.T, f *fixture) {
	f.wantSwept(sweeper(), 0)
	_, lost := f.strand(newWorker("w1"))
	f.advance(time.Minute)
	if swept := f.sweep(sweeper()); len(swept.Returned) != 1 || swept.Returned[0].ID != lost.ID {
		t.Errorf("swept %+v, want the run returned", swept)
	}
}
