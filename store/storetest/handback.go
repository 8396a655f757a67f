package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func (f *fixture) handBack(request store.ClaimRequest) {
	f.t.Helper()
	if held, err := f.store.HandBack(f.ctx, request); err != nil || held != 0 {
		f.t.Fatalf("HandBack: %d held, %v", held, err)
	}
}

// granted makes a claim of all that is due, whose answer its worker never sees.
func (f *fixture) granted(worker store.WorkerID, n int) (store.ClaimRequest, []store.ClaimedRun) {
	f.t.Helper()
	request := f.request(worker, n)
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil || len(claimed) != n {
		f.t.Fatalf("claimed %d runs, %v, want %d", len(claimed), err, n)
	}
	return request, claimed
}

func handBackClaim(t *testing.T, f *fixture) {
	f.enqueue(newRuns(2)...)
	f.enqueue(newRun(func(r *store.NewRun) { r.OnCrash = store.CrashDead }))
	request, claimed := f.granted(newWorker("w1"), 3)
	f.did(store.CancelRuns, claimed[1].ID, store.CancelRequested, store.Running)
	for range 2 {
		f.handBack(request)
	}
	for i, want := range []store.State{store.Pending, store.Cancelled, store.Pending} {
		record := f.record(claimed[i].ID)
		if record.State != want || record.Attempt != 0 || record.CrashCount != 0 || len(record.Attempts) != 0 {
			t.Errorf("run %d is %+v, want it %v, without an attempt or a crash", i, record, want)
		}
	}
	if again, err := f.store.Claim(f.ctx, request); err != nil || len(again) != 0 {
		t.Errorf("the claim is given %d runs again, %v", len(again), err)
	}
	other, taken := f.granted(newWorker("w2"), 2)
	f.handBack(request)
	if verdicts := f.settle(one(request.Claim, request.Worker, taken[0].ID, success())); verdicts[0] != store.Rejected {
		t.Errorf("a late settle is %v, want it refused", verdicts[0])
	}
	f.advance(20 * time.Second)
	if renewed, err := f.store.Renew(f.ctx, []lease.ClaimID{other.Claim}, 30*time.Second); err != nil || len(renewed) != 1 {
		t.Fatalf("Renew: %v, %v", renewed, err)
	}
	f.advance(15 * time.Second)
	if done := f.reclaim(); len(done.Runs) != 0 {
		t.Errorf("reclaimed %+v, want nothing of a claim that was handed back", done.Runs)
	}
	if again, err := f.store.Claim(f.ctx, other); err != nil || len(again) != 2 {
		t.Errorf("the other claim holds %d runs, %v, want 2", len(again), err)
	}
}

func handBackFirst(t *testing.T, f *fixture) {
	f.enqueue(newRuns(3)...)
	request := f.request(newWorker("w1"), 3)
	f.handBack(request)
	for range 2 {
		if claimed, err := f.store.Claim(f.ctx, request); err != nil || len(claimed) != 0 {
			t.Errorf("the claim is given %d runs, %v, want none", len(claimed), err)
		}
	}
	if counts := f.counts(); counts[store.Pending] != 3 {
		t.Errorf("counts %v, want 3 pending", counts)
	}
	f.advance(31 * time.Second)
	if done := f.reclaim(); len(done.Runs) != 0 {
		t.Errorf("reclaimed %+v, want nothing", done.Runs)
	}
	f.granted(newWorker("w2"), 3)
}

func handBackRest(t *testing.T, f *fixture) {
	f.enqueue(newRuns(6)...)
	worker := newWorker("w1")
	request, claimed := f.granted(worker, 6)
	settlement := all(request.Claim, worker, claimed[:2], success())
	settlement.Last = false
	f.settle(settlement)
	f.handBack(request)
	if counts := f.counts(); counts[store.Succeeded] != 2 || counts[store.Pending] != 4 {
		t.Errorf("counts %v, want 2 succeeded and 4 pending", counts)
	}
	late, _ := f.granted(worker, 4)
	f.advance(31 * time.Second)
	if done := f.reclaim(); len(done.Runs) != 4 {
		t.Errorf("reclaimed %+v, want the four of the lease that expired", done.Runs)
	}
	f.handBack(late)
	for _, run := range claimed[2:] {
		if record := f.record(run.ID); record.State != store.Pending || record.CrashCount != 1 || record.Attempt != 0 {
			t.Errorf("the run is %+v, want it as reclaim left it", record)
		}
	}
}

func handBackThousand(t *testing.T, f *fixture) {
	f.enqueue(newRuns(1200)...)
	request, _ := f.granted(newWorker("w1"), 1200)
	f.handBack(request)
	if counts := f.counts(); counts[store.Pending] != 1200 {
		t.Errorf("counts %v, want 1200 pending", counts)
	}
	f.granted(newWorker("w2"), 1200)
}

// handBackBeside hands back claims that are under way.
func handBackBeside(t *testing.T, f *fixture) {
	const runs, rounds = 20, 30
	f.enqueue(newRuns(runs)...)
	f.enqueue(newRuns(runs, func(r *store.NewRun) { r.Priority = 1 })...)
	for range rounds {
		request := f.request(newWorker("w1"), 2*runs)
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := f.store.Claim(f.ctx, request); err != nil {
				t.Errorf("Claim: %v", err)
			}
		})
		both.Go(func() {
			if held, err := f.store.HandBack(f.ctx, request); err != nil || held != 0 {
				t.Errorf("HandBack: %d held, %v", held, err)
			}
		})
		both.Wait()
		if counts := f.counts(); counts[store.Pending] != 2*runs {
			t.Fatalf("counts %v, want all pending", counts)
		}
	}
}

func headsFrom(t *testing.T, f *fixture) {
	f.enqueue(newRuns(2, func(r *store.NewRun) { r.At = f.now().Add(-time.Hour) })...)
	f.enqueue(newRun())
	serves := store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}}
	heads, err := f.store.Heads(f.ctx, serves)
	if err != nil || len(heads) != 1 || !heads[0].Waiting {
		t.Fatalf("heads %+v, %v", heads, err)
	}
	_, claimed := f.claim(newWorker("w1"), 2)
	serves.From = map[store.LaneID]time.Time{heads[0].Lane: claimed[1].DueAt, heads[0].Lane + 1000: f.now().Add(time.Hour)}
	for range 2 {
		again, err := f.store.Heads(f.ctx, serves)
		if err != nil || len(again) != 1 || !again[0].Waiting || !again[0].DueAt.After(claimed[1].DueAt) || again[0].In > 0 {
			t.Errorf("heads from a mark on: %+v, %v, want the run that waits after it", again, err)
		}
	}
	serves.From[heads[0].Lane] = f.now().Add(time.Hour)
	if after, err := f.store.Heads(f.ctx, serves); err != nil || len(after) != 1 {
		t.Errorf("heads after the last: %+v, %v", after, err)
	}
}
