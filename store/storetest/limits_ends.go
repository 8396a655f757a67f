package storetest

import (
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/store"
)

func zombieFreesNothing(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	runs := newRuns(3, limited("api"))
	f.enqueue(runs...)
	zombie := f.wantAdmitted("it", runs[0])
	f.advance(31 * time.Second)
	f.reclaim()
	second := f.wantAdmitted("the next", runs[1])
	for _, outcome := range []store.Outcome{success(), {Kind: store.Failure, Error: "late"}, {Kind: store.HandedBack}} {
		late := zombie[0].settlement(outcome)
		late.Runs = append(late.Runs, store.Settled{ID: runs[1].ID, Outcome: outcome}) // never was its own
		for _, verdict := range f.settle(late) {
			if verdict != store.Rejected {
				t.Errorf("the late settle with %v was %v", outcome.Kind, verdict)
			}
		}
		f.wantGate("a late settle", "api", "", 1, 2)
	}
	f.wantAdmitted("full")
	second.end(success())
	// The zombie's own run starts again, and its late settle does not end it.
	third := f.wantAdmitted("the third", runs[2])
	third.end(success())
	again := f.wantAdmitted("what has crashed", runs[0])
	f.settle(zombie[0].settlement(success()))
	f.wantGate("a late settle of the same run", "api", "", 1, 0)
	again.end(success())
	f.wantGate("at the end", "api", "", 0, 0)
}

func settleTwiceFreesOnce(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1), semaphore("tenant", 1))
	runs := newRuns(3, limited("api", "tenant=acme"))
	f.enqueue(runs...)
	first := f.wantAdmitted("it", runs[0])
	first.end(success())
	second := f.wantAdmitted("the next", runs[1])
	for range 2 {
		for _, verdict := range f.settle(first[0].settlement(success())) {
			if verdict != store.AlreadyApplied {
				t.Errorf("the repeat was %v", verdict)
			}
		}
		f.wantGate("a settle repeated", "api", "", 1, int(f.gate("api", "").Waiting.N))
		f.wantGate("a settle repeated", "tenant", "acme", 1, int(f.gate("tenant", "acme").Waiting.N))
		f.wantAdmitted("full")
	}
	second.end(success())
	f.wantAdmitted("the last", runs[2])
}

func settleManyClaims(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 2))
	var runs []store.NewRun
	for _, key := range []string{"a", "b", "c"} {
		runs = append(runs, newRuns(4, limited("tenant="+key))...)
	}
	f.enqueue(runs...)
	var claims admittedAll
	for range 6 {
		claims = append(claims, f.admit(1))
	}
	f.wantIDs("two of each key", claims.ids(), runs[0], runs[1], runs[4], runs[5], runs[8], runs[9])
	plain := newRun()
	f.enqueue(plain)
	worker := newWorker("w2")
	claim, claimed := f.claim(worker, 1)
	settlements := []store.Settlement{all(claim, worker, claimed, success())}
	for i, a := range claims {
		outcome := []store.Outcome{success(), {Kind: store.Failure, Error: "e", After: time.Hour}, {Kind: store.Death, Error: "e"}}[i%3]
		settlements = append(settlements, a.settlement(outcome))
	}
	for i, verdict := range f.settle(settlements...) {
		if verdict != store.Applied {
			t.Errorf("settled %d: %v", i, verdict)
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		if in := f.gate("tenant", key).InUse; in != 0 {
			t.Errorf("%d places of %s are in use", in, key)
		}
	}
	f.wantAdmitted("the others", runs[2], runs[3], runs[6], runs[7], runs[10], runs[11])
}

func strandedFrees(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 2))
	runs := newRuns(3, limited("api"))
	f.enqueue(runs...)
	claims := f.wantAdmitted("two places", runs[0], runs[1])
	part := claims[0].settlement(success())
	part.Runs = part.Runs[:1] // the last of the claim, it says
	f.settle(part)
	f.wantGate("stranded", "api", "", 1, 1)
	third := f.wantAdmitted("the place that is free", runs[2])
	f.advance(2 * store.SweepPassEvery)
	if swept := f.sweep(sweeper()); len(swept.Returned) != 1 || swept.Returned[0].ID != runs[1].ID {
		t.Fatalf("swept %+v, want the run returned", swept)
	}
	f.wantGate("swept", "api", "", 1, 1)
	f.wantAdmitted("what was returned", runs[1]).end(success())
	third.end(success())
	f.wantGate("at the end", "api", "", 0, 0)
}

// completed admits two runs and completes one of them in a transaction.
func (f *fixture) completed(runs ...store.NewRun) admittedAll {
	f.t.Helper()
	f.declareLimits(semaphore("api", 2))
	f.enqueue(runs...)
	claims := f.wantAdmitted("two places", runs[0], runs[1])
	tx := f.begin()
	if err := tx.Complete(f.ctx, store.Holder{Run: runs[0].ID, Claim: claims[0].claim}, store.Completion{}); err != nil {
		f.t.Fatalf("Complete: %v", err)
	}
	f.commit(tx)
	if in := f.gate("api", "").InUse; in != 1 && in != 2 { // with the commit, or with the settle that follows
		f.t.Fatalf("%d places are in use", in)
	}
	return claims
}

func completedFrees(t *testing.T, f *fixture) {
	if f.backend.Begin == nil {
		return
	}
	runs := newRuns(3, limited("api"))
	claims := f.completed(runs...)
	part := claims[0].settlement(success())
	part.Runs, part.Last = part.Runs[:1], false
	if verdicts := f.settle(part); verdicts[0] != store.AlreadyApplied {
		t.Errorf("the settle that follows was %v", verdicts[0])
	}
	f.wantGate("settled", "api", "", 1, 1)
	f.wantAdmitted("the place that is free", runs[2])
}

func completedAndCrashed(t *testing.T, f *fixture) {
	if f.backend.Begin == nil {
		return
	}
	runs := newRuns(4, limited("api"))
	f.completed(runs...)
	f.advance(31 * time.Second)
	if done := f.reclaim(); len(done.Runs) != 1 || done.Runs[0].ID != runs[1].ID {
		t.Fatalf("reclaimed %+v, want the run that was not completed", done)
	}
	f.wantGate("reclaimed", "api", "", 0, 3)
	f.wantAdmitted("the others", runs[2], runs[3])
}
