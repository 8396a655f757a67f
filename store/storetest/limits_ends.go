package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

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
	part.Runs, part.Claimed = part.Runs[:1], 0 // the last of the claim, it says
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

func completedWhole(t *testing.T, f *fixture) {
	if f.backend.Begin == nil {
		return
	}
	runs := newRuns(4, limited("api"))
	claims := f.completed(runs...)
	ended := *f.record(runs[0].ID).FinishedAt
	if verdicts := f.settle(claims[0].settlement(success())); !slices.Equal(verdicts, []store.Verdict{store.AlreadyApplied, store.Applied}) {
		t.Errorf("the settle that follows was %v", verdicts)
	}
	if again := *f.record(runs[0].ID).FinishedAt; !again.Equal(ended) {
		t.Errorf("the run ended at %v, and then at %v", ended, again)
	}
	f.wantGate("settled", "api", "", 0, 2)
	f.wantAdmitted("both places are free", runs[2], runs[3])
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

func limitCheckTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"a sound store has no fault, whatever waits, executes, is retried or was changed": limitsAreSound,
		"starts that are given back are for the other runs of the key":                    startsForOthers,
		"keys that nothing remembers are forgotten, and their limits hold after it":       idleKeysGo,
	}
}

// sound fails the test if anything is wrong with the limits.
func (f *fixture) sound() {
	f.t.Helper()
	faults, err := f.store.CheckLimits(f.ctx)
	if err != nil {
		f.t.Fatalf("CheckLimits: %v", err)
	}
	for _, fault := range faults {
		f.t.Errorf("limit %q, key %q, run %s is %s: %s", fault.Limit, fault.Key, fault.Run, fault.Fault, fault.Text)
	}
}

// startsForOthers hands back a run that had the key's only start of the day, before its
// handler has begun: another run begins immediately, wherever the first one is then.
func startsForOthers(t *testing.T, f *fixture) {
	f.declareLimits(store.Limit{Name: "api", Kind: store.LimitFixedWindow, Max: 1, Period: store.MaxLimitPeriod})
	for key, aside := range map[string]func(first store.NewRun){
		"paused": func(store.NewRun) { f.setQueue("other", store.PauseQueue) },
		"ended":  func(first store.NewRun) { f.did(store.CancelRuns, first.ID, store.CancelRequested, store.Running) },
	} {
		first := newRun(limited("api="+key), func(r *store.NewRun) { r.Queue = "other" })
		f.enqueue(first)
		held := f.admit(10, "other")
		second := newRun(limited("api=" + key))
		f.enqueue(second)
		if len(held.runs) != 1 || len(f.admit(10).runs) != 0 {
			t.Fatalf("%s: %d runs have begun, want the first one alone", key, len(held.runs))
		}
		aside(first)
		held.end(store.Outcome{Kind: store.HandedBack, Unbegun: true})
		if now := f.admit(10); len(now.runs) != 1 || now.runs[0].ID != second.ID {
			t.Errorf("%s: %+v begin, want the second run", key, now.runs)
		}
		f.setQueue("other", store.ResumeQueue)
	}
}

func limitsAreSound(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 2), semaphore("api", 3), store.Limit{Name: "rate", Kind: store.LimitTokenBucket, Max: 2, Period: time.Second, Burst: 2})
	for _, texts := range [][]string{{"tenant=a"}, {"tenant*2=a", "api"}, {"tenant!finished=b", "api"}, {"rate"}, {"rate", "tenant=c"}, {"api*2"}} {
		for range 4 {
			f.enqueue(newRun(limited(texts...), func(r *store.NewRun) { r.MaxAttempts = 3 }))
		}
	}
	f.sound()
	first := f.admit(4)
	f.sound()
	second := f.admit(10)
	f.sound()
	f.changeLimit(store.SetLimit, semaphore("tenant", 1))
	f.changeLimit(store.DrainLimit, store.Limit{Name: "api"})
	f.sound()
	first.end(store.Outcome{Kind: store.Failure, Error: "e", After: time.Hour})
	f.sound()
	f.changeLimit(store.DisableLimit, store.Limit{Name: "api"})
	third := f.admit(10)
	f.changeLimit(store.ResumeLimit, store.Limit{Name: "api"})
	f.sound()
	second.end(success())
	third.end(success())
	f.sound()
	f.advance(31 * time.Second)
	f.sound()
	f.admitAll(5)
	f.advance(31 * time.Second)
	for len(f.reclaim().Runs) > 0 {
	}
	f.sound()
}

func idleKeysGo(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 1), store.Limit{Name: "rate", Kind: store.LimitFixedWindow, Max: 1, Period: time.Hour})
	for range 2 {
		f.enqueue(newRun(limited("tenant=a", "rate=a")))
	}
	a := f.admit(5)
	if len(a.runs) != 1 {
		t.Fatalf("%d runs were admitted, want 1", len(a.runs))
	}
	f.sweep(store.SweepRequest{By: uuid.New(), Limit: 100})
	if got := f.admit(5); len(got.runs) != 0 {
		t.Error("a sweep has made a limit forget what is held")
	}
	a.end(success())
	f.sweep(store.SweepRequest{By: uuid.New(), Limit: 100})
	if got := f.admit(5); len(got.runs) != 0 {
		t.Error("a sweep has made a window forget a start")
	}
	f.advance(time.Hour)
	if got := f.admit(5); len(got.runs) != 1 {
		t.Errorf("%d runs were admitted in the next window, want 1", len(got.runs))
	} else {
		got.end(success())
	}
	f.advance(2*time.Hour + time.Second)
	f.sweep(store.SweepRequest{By: uuid.New(), Limit: 100})
	f.sound()
	info, err := f.store.Gate(f.ctx, "tenant", "a")
	if err != nil && !errors.Is(err, store.ErrNotFound) || info.InUse != 0 {
		t.Errorf("the key has %d places in use, %v", info.InUse, err)
	}
}
