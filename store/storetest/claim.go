package storetest

import (
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func claimTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a claim of a thousand comes in the order of its steps":       claimThousand,
		"fences of a run rise from claim to claim":                    fencesRise,
		"a claim of no lane, of an unknown lane, or of no run, is no": claimNothing,
		"a lease of one claim does not cover the runs of another":     leasesApart,
		"a repeated claim answers in the same order":                  repeatInOrder,
		"a claim repeated with other steps answers all it holds":      repeatOtherSteps,
		"a repeated claim answers what is not settled yet":            repeatAfterSettles,
		"a claim that is handed back leaves its runs as they were":    handBackClaim,
		"a claim that is handed back before it comes gets nothing":    handBackFirst,
		"a hand-back leaves what has been settled or taken over":      handBackRest,
		"a claim of a thousand is handed back":                        handBackThousand,
		"claims whose answers are lost strand no run":                 lostAnswers,
		"heads from a mark on show what waits there":                  headsFrom,
		"a claim and its hand-back at the same time leave nothing":    handBackBeside,
		"a retry waits behind what was due before it":                 retryOrder,
	}
}

func claimThousand(t *testing.T, f *fixture) {
	high := newRuns(300, func(r *store.NewRun) { r.Priority = 2 })
	low := newRuns(900)
	f.enqueue(low...)
	f.enqueue(high...)
	request := f.request(newWorker("w1"), 1000)
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
	if err != nil || len(heads) != 2 {
		t.Fatalf("Heads: %v, %v", heads, err)
	}
	lanes := map[int]store.LaneID{}
	for _, head := range heads {
		lanes[head.Priority] = head.Lane
	}
	request.Steps = []store.Step{{Lane: lanes[2], Take: 1000}, {Lane: lanes[0], Take: 1000}}
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil || len(claimed) != 1000 {
		t.Fatalf("claimed %d runs, %v, want 1000", len(claimed), err)
	}
	want := append(append([]store.NewRun{}, high...), low[:700]...)
	for i, c := range claimed {
		if c.ID != want[i].ID {
			t.Fatalf("run %d of the claim is out of order", i)
		}
	}
	_, rest := f.claim(newWorker("w2"), 1000)
	if len(rest) != 200 {
		t.Errorf("%d runs were left, want 200", len(rest))
	}
}

func fencesRise(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	worker := newWorker("w1")
	var last lease.Fence
	for range 5 {
		claim, claimed := f.claimOne(worker)
		if claimed.Fence <= last || claimed.Attempt != 1 {
			t.Fatalf("fence %d after %d, attempt %d", claimed.Fence, last, claimed.Attempt)
		}
		if record := f.record(claimed.ID); record.Fence != claimed.Fence {
			t.Fatalf("the record's fence is %d, the claim's %d", record.Fence, claimed.Fence)
		}
		last = claimed.Fence
		f.settle(one(claim, worker, claimed.ID, store.Outcome{Kind: store.HandedBack}))
	}
}

func claimNothing(t *testing.T, f *fixture) {
	f.enqueue(newRun())
	request := f.request(newWorker("w1"), 10)
	due := request.Steps[0]
	for _, steps := range [][]store.Step{
		nil,
		{{Lane: due.Lane + 1000, Take: 10}},
		{{Lane: -due.Lane, Take: 10}},
		{{Lane: due.Lane, Take: 0}},
		{{Lane: due.Lane, Skip: 1, Take: 10}},
		{{Lane: due.Lane, From: f.now().Add(time.Hour), Take: 10}},
	} {
		request.Claim, request.Steps = lease.NewClaimID(), steps
		claimed, err := f.store.Claim(f.ctx, request)
		if err != nil || len(claimed) != 0 {
			t.Errorf("steps %+v: %d runs, %v", steps, len(claimed), err)
		}
		renewed, err := f.store.Renew(f.ctx, []lease.ClaimID{request.Claim}, time.Minute)
		if err != nil || len(renewed) != 0 {
			t.Errorf("steps %+v: a lease without runs: %v, %v", steps, renewed, err)
		}
	}
}

func leasesApart(t *testing.T, f *fixture) {
	f.enqueue(newRuns(2)...)
	worker := newWorker("w1")
	c1, r1 := f.claimOne(worker)
	c2, r2 := f.claimOne(worker)
	verdicts := f.settle(
		one(c1, worker, r2.ID, success()),
		one(c2, worker, r1.ID, success()),
	)
	if verdicts[0] != store.Rejected || verdicts[1] != store.Rejected {
		t.Errorf("verdicts %v, want each claim refused with the other's run", verdicts)
	}
}

func repeatInOrder(t *testing.T, f *fixture) {
	f.enqueue(newRuns(40)...)
	f.enqueue(newRuns(40, func(r *store.NewRun) { r.Priority = 1 })...)
	request := f.request(newWorker("w1"), 60)
	request.Steps[0].Take, request.Steps[1].Take = 25, 25
	first, err := f.store.Claim(f.ctx, request)
	if err != nil || len(first) != 50 {
		t.Fatalf("claimed %d runs, %v, want 50", len(first), err)
	}
	second, err := f.store.Claim(f.ctx, request)
	if err != nil || len(second) != len(first) {
		t.Fatalf("claimed again: %d runs, %v, want %d", len(second), err, len(first))
	}
	for i := range first {
		if first[i].ID != second[i].ID || first[i].Fence != second[i].Fence || first[i].Lane != second[i].Lane ||
			string(first[i].Args) != string(second[i].Args) || first[i].DueAt != second[i].DueAt {
			t.Fatalf("run %d is %+v the first time and %+v the second", i, first[i], second[i])
		}
	}
}

func retryOrder(t *testing.T, f *fixture) {
	runs := newRuns(3)
	f.enqueue(runs...)
	worker := newWorker("w1")
	claim, first := f.claimOne(worker)
	f.advance(time.Second)
	f.settle(one(claim, worker, first.ID, store.Outcome{Kind: store.Failure, Error: "again"}))
	_, claimed := f.claim(worker, 10)
	if len(claimed) != 3 || claimed[0].ID != runs[1].ID || claimed[1].ID != runs[2].ID || claimed[2].ID != runs[0].ID {
		t.Errorf("the retry was not the last of the claim")
	}
}
