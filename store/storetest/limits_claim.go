package storetest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durable-worker/durable-worker/lease"
	"github.com/durable-worker/durable-worker/store"
)

func admissionAgain(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 3))
	runs := newRuns(6, limited("api"))
	f.enqueue(runs...)
	worker := newWorker("w1")
	request := f.admission(worker, 10)
	first, err := f.store.Claim(f.ctx, request)
	if err != nil || len(first) != 3 {
		t.Fatalf("claimed %d runs (%v), want 3", len(first), err)
	}
	again := f.admission(worker, 10)
	again.Claim = request.Claim
	for name, repeat := range map[string]store.ClaimRequest{"the same": request, "with what the heads say now": again} {
		answer, err := f.store.Claim(f.ctx, repeat)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantSameRuns(t, name, answer, first)
	}
	f.wantGate("asked three times", "api", "", 3, 3)
	a := admitted{f: f, claim: request.Claim, worker: worker, runs: first}
	part := a.settlement(success())
	part.Runs, part.Last = part.Runs[:1], false
	f.settle(part)
	answer, err := f.store.Claim(f.ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	wantSameRuns(t, "after a settle", answer, first[1:])
	f.wantAdmitted("the place that is free", runs[3])
}

// admissionAgainWithRoom repeats a claim whose limit has room for more: also then the
// answer is what it got, and nothing else is admitted.
func admissionAgainWithRoom(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 5))
	runs := newRuns(6, limited("api"))
	f.enqueue(runs...)
	worker := newWorker("w1")
	request := f.admission(worker, 2)
	first, err := f.store.Claim(f.ctx, request)
	if err != nil || len(first) != 2 {
		t.Fatalf("claimed %d runs (%v), want 2", len(first), err)
	}
	for _, n := range []int{2, 10} {
		again := f.admission(worker, n)
		again.Claim = request.Claim
		answer, err := f.store.Claim(f.ctx, again)
		if err != nil {
			t.Fatal(err)
		}
		wantSameRuns(t, "asked again", answer, first)
		f.wantGate("asked again", "api", "", 2, 4)
	}
	f.wantAdmitted("the room that is left, from the front of the line", runs[2], runs[3], runs[4])
	a := admitted{f: f, claim: request.Claim, worker: worker, runs: first}
	a.end(success())
	f.wantAdmitted("a place that the claim has freed", runs[5])
}

func admissionHandedBack(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 2))
	runs := newRuns(3, limited("api"))
	f.enqueue(runs...)
	request := f.admission(newWorker("w1"), 10)
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil || len(claimed) != 2 {
		t.Fatalf("claimed %d runs (%v), want 2", len(claimed), err)
	}
	f.advance(time.Second)
	if held, err := f.store.HandBack(f.ctx, request); err != nil || held != 0 {
		t.Fatalf("HandBack: %d held, %v", held, err)
	}
	f.wantGate("handed back", "api", "", 0, 3)
	if again, err := f.store.Claim(f.ctx, request); err != nil || len(again) != 0 {
		t.Fatalf("the claim that was handed back got %d runs (%v)", len(again), err)
	}
	claims := f.wantAdmitted("what was handed back is due now, after what was due before", runs[2], runs[0])
	if attempt := f.record(runs[0].ID).Attempt; attempt != 1 {
		t.Errorf("attempt %d, want that of the hand-back refunded", attempt)
	}
	// A claim that comes late is refused, and takes nothing.
	late := f.admission(newWorker("w2"), 10)
	if held, err := f.store.HandBack(f.ctx, late); err != nil || held != 0 {
		t.Fatalf("HandBack: %d held, %v", held, err)
	}
	claims.end(success())
	if got, err := f.store.Claim(f.ctx, late); err != nil || len(got) != 0 {
		t.Fatalf("a late claim got %d runs (%v)", len(got), err)
	}
	f.wantAdmitted("the last", runs[1])
}

func limitsOfRecord(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("tenant", 5), semaphore("api", 2))
	plain := newRun()
	texts := []string{"tenant=Acme", "api*2!finished!drop"}
	run := newRun(limited(texts...))
	f.enqueue(plain, run)
	if got := f.record(run.ID).Limits; !slices.Equal(got, texts) {
		t.Errorf("limits %q, want %q", got, texts)
	}
	page, err := f.store.Runs(f.ctx, store.Filter{States: []store.State{store.Pending}})
	if err != nil || len(page.Runs) != 2 {
		t.Fatalf("%d runs in the list (%v), want 2", len(page.Runs), err)
	}
	for _, r := range page.Runs {
		if want := map[store.RunID][]string{run.ID: texts}[r.ID]; !slices.Equal(r.Limits, want) {
			t.Errorf("in a list: limits %q, want %q", r.Limits, want)
		}
	}
	f.wantAdmitted("it", run).end(success())
	if got := f.record(run.ID).Limits; !slices.Equal(got, texts) {
		t.Errorf("limits after its end %q, want %q", got, texts)
	}
}

func unknownLimits(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 2))
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, store.ErrUnknownLimit) || !strings.Contains(err.Error(), "githup") {
			t.Errorf("%s: %v, want the limit refused by its name", what, err)
		}
	}
	bad := newRun(limited("api", "githup=x"))
	_, err := f.store.Enqueue(f.ctx, newRun(), newRun(limited("api")), bad)
	refused("enqueue", err)
	keyed := bad
	keyed.Key = store.Key{Text: "k"}
	_, err = f.store.Enqueue(f.ctx, keyed)
	refused("enqueue with a key", err)
	_, err = f.store.Rerun(f.ctx, store.NewRunID(), bad, "ann")
	refused("rerun", err)
	if counts := f.counts(); counts[store.Pending] != 0 {
		t.Errorf("counts %v: something was stored", counts)
	}
	parent := newRun()
	f.enqueue(parent)
	claim, claimed := f.claimOne(newWorker("w1"))
	_, err = f.store.EnqueueUnder(f.ctx, store.Holder{Run: claimed.ID, Claim: claim}, newRun(), bad)
	refused("enqueue under a run", err)
	if f.backend.Begin != nil {
		tx := f.begin()
		_, err = tx.Enqueue(f.ctx, bad)
		refused("enqueue in a transaction", err)
		tx.Rollback()
	}
	if counts := f.counts(); counts[store.Pending] != 0 {
		t.Errorf("counts %v: something was stored", counts)
	}
	f.declareLimits(semaphore("githup", 1))
	f.enqueue(bad)
	f.wantAdmitted("declared since", bad)
}

func heavyRefused(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 2))
	for _, text := range []string{"api*3", "api*1000000"} {
		if _, err := f.store.Enqueue(f.ctx, newRun(limited(text))); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "api") {
			t.Errorf("%s: %v, want it refused", text, err)
		}
	}
	if _, err := f.store.Enqueue(f.ctx, newRun(limited("api", "API"))); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("twice the same: %v, want it refused", err)
	}
	if counts := f.counts(); counts[store.Pending] != 0 {
		t.Errorf("counts %v: something was stored", counts)
	}
}

func limitEndTests() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"every outcome frees the place in its own write":                     outcomesFree,
		"a run that is retried waits in line again when it is due":           retryWaitsAgain,
		"a crash frees the place with the reclaim":                           crashFrees,
		"a lease reclaimed in parts frees place by place":                    crashFreesInParts,
		"a run in its second crash is claimed alone, under its limit":        isolatedLimited,
		"a run in its second crash is found where it needs no place":         isolatedRelease,
		"an isolated run is found where it is replaced by a limited one":     isolatedReplaced,
		"a settle that comes too late frees nothing":                         zombieFreesNothing,
		"a settle that is repeated frees nothing":                            settleTwiceFreesOnce,
		"a settle of several claims frees the places of all":                 settleManyClaims,
		"a lease that was deleted by hand loses no place":                    strandedFrees,
		"a run completed in a transaction leaves its place with its settle":  completedFrees,
		"a run completed in a transaction is settled with its whole claim":   completedWhole,
		"a run completed by a worker that crashed then leaves it to reclaim": completedAndCrashed,
	}
}

func outcomesFree(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	for _, outcome := range []store.Outcome{
		success(), {Kind: store.Success, Result: []byte(`1`)}, {Kind: store.Success, Log: "a line"},
		{Kind: store.Failure, Error: "e", After: time.Hour}, {Kind: store.Death, Error: "e"}, {Kind: store.Cancellation, Error: "e"},
		{Kind: store.Snoozed, After: time.Hour},
	} {
		next := newRuns(2, limited("api"))
		f.enqueue(next...)
		claims := f.wantAdmitted("before "+outcome.Kind.String(), next[0])
		claims.end(outcome)
		if in := f.gate("api", "").InUse; in != 0 {
			t.Fatalf("after %v %d places are in use", outcome.Kind, in)
		}
		f.wantAdmitted("after "+outcome.Kind.String(), next[1]).end(success())
	}
	run := newRun(limited("api"))
	f.enqueue(run)
	f.wantAdmitted("it", run).end(store.Outcome{Kind: store.HandedBack})
	f.wantAdmitted("what was handed back", run)
}

func retryWaitsAgain(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	run := newRun(limited("api"))
	f.enqueue(run)
	f.wantAdmitted("it", run).end(store.Outcome{Kind: store.Failure, Error: "e", After: time.Minute})
	other := newRun(limited("api"))
	f.enqueue(other)
	claims := f.wantAdmitted("the other", other)
	f.advance(2 * time.Minute)
	f.wantAdmitted("full")
	claims.end(success())
	again := f.wantAdmitted("the retry", run)
	if got := again[0].runs[0].Attempt; got != 2 {
		t.Errorf("attempt %d, want 2", got)
	}
	again.end(store.Outcome{Kind: store.Failure, Error: "e", After: time.Minute})
	f.wantAdmitted("not due")
	f.advance(61 * time.Second)
	f.wantAdmitted("due", run)
}

func crashFrees(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 2))
	runs := newRuns(4, limited("api"))
	f.enqueue(runs...)
	crashed := f.wantAdmitted("two places", runs[0], runs[1])
	f.advance(31 * time.Second)
	f.wantGate("an expired lease has its places until it is reclaimed", "api", "", 2, 2)
	f.wantAdmitted("full")
	if done := f.reclaim(); len(done.Runs) != 2 {
		t.Fatalf("reclaimed %d runs, want 2", len(done.Runs))
	}
	f.wantGate("reclaimed", "api", "", 0, 4)
	claims := f.wantAdmitted("due earlier than what has crashed, which is due now", runs[2], runs[3])
	for _, verdict := range f.settle(crashed[0].settlement(success())) {
		if verdict != store.Rejected {
			t.Errorf("the late settle was %v", verdict)
		}
	}
	f.wantGate("a late settle", "api", "", 2, 2)
	claims.end(success())
	f.wantAdmitted("what has crashed", runs[0], runs[1]).end(success())
	f.wantGate("at the end", "api", "", 0, 0)
}

func crashFreesInParts(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 3))
	runs := newRuns(6, limited("api"))
	f.enqueue(runs...)
	f.wantAdmitted("three places", runs[:3]...)
	f.advance(31 * time.Second)
	for left := 2; left >= 0; left-- {
		done, err := f.store.Reclaim(f.ctx, store.ReclaimRequest{MaxCrashes: 4, Limit: 10, Runs: 1})
		if err != nil || len(done.Runs) != 1 {
			t.Fatalf("reclaimed %d runs (%v), want 1", len(done.Runs), err)
		}
		f.wantGate("a part was reclaimed", "api", "", left, 6-left)
	}
	f.reclaim()
	f.wantAdmitted("the others first", runs[3:]...)
}

func isolatedLimited(t *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	run := newRun(limited("api"), func(r *store.NewRun) { r.MaxAttempts = 10 })
	f.enqueue(run)
	for range 2 {
		f.wantAdmitted("it", run)
		f.advance(31 * time.Second)
		f.reclaim()
	}
	if !f.record(run.ID).Isolated {
		t.Fatal("it is not isolated after its second crash")
	}
	other := newRun(limited("api"))
	f.enqueue(other)
	if lane := f.survey().Lanes[0]; lane.Pending.N != 2 || lane.Isolated != (store.Count{N: 1}) {
		t.Errorf("survey %+v, want one of two to be isolated", lane)
	}
	claim := f.admitAlone(run)
	f.wantAdmitted("its place is taken")
	claim.end(success())
	f.wantAdmitted("the other", other)
}

func isolatedRelease(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	run := newRun(limited("api!release:ann"), func(r *store.NewRun) { r.MaxAttempts = 10 })
	f.enqueue(run)
	for range 2 {
		f.wantAdmitted("it", run)
		f.advance(31 * time.Second)
		f.reclaim()
	}
	f.admitAlone(run).end(success())
}

func isolatedReplaced(_ *testing.T, f *fixture) {
	f.declareLimits(semaphore("api", 1))
	run := newRun(func(r *store.NewRun) { r.Key.Text = "k" })
	f.isolate(run)
	f.existing(run.ID, newRun(limited("api"), func(r *store.NewRun) { r.Key = store.Key{Text: "k", Policy: store.KeyReplace} }))
	f.admitAlone(run).end(success())
}

// admitAlone claims an isolated run under its limits, and expects this one.
func (f *fixture) admitAlone(want store.NewRun) admitted {
	f.t.Helper()
	heads, err := f.store.Heads(f.ctx, store.Serves{Queues: []string{store.DefaultQueue}, Jobs: []string{"mail"}})
	if err != nil {
		f.t.Fatal(err)
	}
	at := slices.IndexFunc(heads, func(h store.Head) bool { return h.Line < 0 })
	if at < 0 || heads[at].Lane != heads[at].Line || !heads[at].Waiting {
		f.t.Fatalf("heads %+v, want one of the line of isolated runs", heads)
	}
	request := store.ClaimRequest{Claim: lease.NewClaimID(), Worker: newWorker("alone"), Duration: 30 * time.Second, Limit: 1, Alone: true,
		Admissions: []store.Admission{{Line: heads[at].Line, Take: 1}}, Lanes: []store.LaneID{heads[at].Lane}}
	claimed, err := f.store.Claim(f.ctx, request)
	if err != nil || len(claimed) != 1 || claimed[0].ID != want.ID || claimed[0].Lane != heads[at].Lane || claimed[0].CrashCount != 2 {
		f.t.Fatalf("claimed %+v (%v), want the isolated run", claimed, err)
	}
	return admitted{f, request.Claim, request.Worker, claimed}
}
